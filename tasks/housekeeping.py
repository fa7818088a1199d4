"""Looking at a run's queues, and removing everything of a run from the servers."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger

from tasks.events import STATUS, WEIGHTS
from tasks.topology import Topology

logger = get_logger(__name__)


def waiting(connection: Any, queue: Any) -> int:
    """Messages that wait in `queue`."""
    channel = connection.default_channel
    if connection.transport.driver_type == "redis":
        # A passive declaration asks whether the list exists without the run's key prefix: always "no such queue".
        return int(channel._size(queue.name))
    return int(queue(channel).queue_declare(passive=True).message_count)


class Depths:
    """Messages waiting in the task queues, over one kept connection."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self._app, self._queues = app, topology.task_queues()
        self._prefix = len(topology.prefix) + 1
        self._connection: Any = None

    def read(self) -> dict[str, int]:
        """Queue name without the run's prefix -> messages that wait; empty while the broker is away."""
        try:
            if self._connection is None:
                self._connection = self._app.connection_for_read()
            return {queue.name[self._prefix :]: waiting(self._connection, queue) for queue in self._queues}
        except Exception as error:  # a look must never stop what it looks at
            logger.debug("cannot read queue depths: %s", error)
            self.close()
            return {}

    def close(self) -> None:
        """Drop the connection; the next read makes a new one."""
        if self._connection is not None:
            self._connection.release()
            self._connection = None


def remove_run(app: Any, redis: Any, topology: Topology) -> None:
    """Delete every queue, exchange and Redis key of the run; what its processes held exclusively is gone with them."""
    with app.connection_for_write() as connection:
        for queue in topology.declared():
            _quietly(connection, lambda channel, queue=queue: queue(channel).delete())
        exchanges = [topology.actor, topology.learner, topology.dead, topology.event(WEIGHTS), topology.event(STATUS)]
        for exchange in exchanges:
            _quietly(connection, lambda channel, exchange=exchange: exchange(channel).delete())
        if connection.transport.driver_type == "amqp":
            control = [f"{topology.prefix}.control.pidbox", f"reply.{topology.prefix}.control.pidbox"]
            for name in [*control, f"{topology.prefix}.events"]:
                _quietly(connection, lambda channel, name=name: channel.exchange_delete(name))
    keys = list(redis.scan_iter(match=f"{topology.key_prefix}*", count=1000))
    for start in range(0, len(keys), 1000):
        redis.unlink(*keys[start : start + 1000])


def _quietly(connection: Any, delete: Any) -> None:
    # A channel dies with the first refusal ("no such queue"), so each deletion has its own.
    channel = connection.channel()
    try:
        delete(channel)
    except connection.channel_errors as error:
        logger.debug("nothing to delete: %s", error)
    finally:
        try:
            channel.close()
        except Exception as error:
            logger.debug("channel already closed: %s", error)
