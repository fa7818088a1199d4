#!/bin/sh
# Writes what RabbitMQ, Redis and the roles need to know of each other into FOLDER: passwords, and URLs that hold them.
#   docker/passwords.sh FOLDER [DOMAIN]
# In the URLs the hosts are rabbitmq and redis, of DOMAIN where one is given.
# WARREN_RABBITMQ_PASSWORD and WARREN_REDIS_PASSWORD, where they are given, are taken; else what FOLDER holds, which
# servers that have run know; else random ones are made. No password has a default.
set -eu
umask 022 # the services that mount FOLDER run as users of their own, and nobody else mounts it
cd "$1"
domain=${2:+.$2}

# Hexadecimal: passwords become parts of URLs.
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

password() { # NAME GIVEN
  if [ -n "$2" ]; then
    case $2 in *[!A-Za-z0-9_-]*)
      echo "WARREN_$1_PASSWORD: use letters, digits, '-' and '_': it becomes part of a URL" >&2
      exit 2
      ;;
    esac
    printf %s "$2"
  elif [ -s "$1" ]; then
    cat "$1"
  else
    random
  fi
}

# Whole or not at all: a start that is interrupted leaves no half of a password.
put() { # NAME CONTENT
  printf '%s\n' "$2" >"$1.new"
  mv "$1.new" "$1"
}

rabbitmq=$(password RABBITMQ "${WARREN_RABBITMQ_PASSWORD:-}")
redis=$(password REDIS "${WARREN_REDIS_PASSWORD:-}")
put RABBITMQ "$rabbitmq"
put REDIS "$redis"
put rabbitmq.conf "default_user = warren
default_pass = $rabbitmq"
put redis.conf "requirepass $redis"
put broker-url "amqp://warren:$rabbitmq@rabbitmq$domain:5672//"
put management-url "http://warren:$rabbitmq@rabbitmq$domain:15672/"
put redis-url "redis://:$redis@redis$domain:6379/0"
