#!/bin/sh
# Runs tests against RabbitMQ 4 and Redis 8 in containers of their own, which end with it.
#   docker/test.sh PYTHON -m pytest tests/tasks
# RABBITMQ_IMAGE and REDIS_IMAGE name other images, QUEUES another default queue type of the virtual host (quorum).
set -eu
rabbitmq_image=${RABBITMQ_IMAGE:-rabbitmq:4.0-management}
redis_image=${REDIS_IMAGE:-redis:8.0-alpine}
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
name=warren-test-$(od -An -N4 -tx1 /dev/urandom | tr -d ' \n')
trap 'docker rm --force --volumes "$name-rabbitmq" "$name-redis" >/dev/null 2>&1 || :' EXIT
trap 'exit 130' INT TERM

docker run --detach --name "$name-redis" --publish 127.0.0.1::6379 "$redis_image" redis-server --save '' \
  --requirepass "$password" >/dev/null
docker run --detach --name "$name-rabbitmq" --publish 127.0.0.1::5672 --env RABBITMQ_DEFAULT_USER=warren \
  --env "RABBITMQ_DEFAULT_PASS=$password" "$rabbitmq_image" >/dev/null
tries=0
until docker exec "$name-rabbitmq" rabbitmq-diagnostics --quiet check_port_connectivity >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ "$tries" -gt 60 ]; then
    echo "RabbitMQ did not start:" >&2
    docker logs --tail 20 "$name-rabbitmq" >&2
    exit 1
  fi
  sleep 1
done
if [ -n "${QUEUES:-}" ]; then
  docker exec "$name-rabbitmq" rabbitmqctl --quiet update_vhost_metadata / --default-queue-type "$QUEUES"
fi
echo "RabbitMQ $(docker exec "$name-rabbitmq" rabbitmqctl --quiet version)," \
  "$(docker exec "$name-redis" redis-server --version)," \
  "queues: ${QUEUES:-classic}"

WARREN_TEST_BROKER_URL="amqp://warren:$password@$(docker port "$name-rabbitmq" 5672/tcp | head -n 1)/%2F"
WARREN_TEST_REDIS_URL="redis://:$password@$(docker port "$name-redis" 6379/tcp | head -n 1)/0"
WARREN_TEST_RABBITMQCTL="docker exec $name-rabbitmq rabbitmqctl"
export WARREN_TEST_BROKER_URL WARREN_TEST_REDIS_URL WARREN_TEST_RABBITMQCTL
status=0
"$@" || status=$?
exit "$status"
