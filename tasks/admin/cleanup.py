"""Looking at a run's queues, and removing everything of a run from the servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

import amqp
import redis
from celery.utils.log import get_logger
from kombu.exceptions import OperationalError

from tasks import compat
from tasks.admin.registry import Directory
from tasks.app.reader import remove_shared
from tasks.events import EVALUATION, STATUS, WEIGHTS, of_player
from tasks.events.retained import Retained
from tasks.topology import Topology
from warren.errors import BrokerError

logger = get_logger(__name__)


def waiting(connection: Any, queue: Any) -> int:
    """Return how many messages wait in `queue`."""
    channel = connection.default_channel
    if connection.transport.driver_type == "redis":
        return compat.redis_queue_length(channel, queue.name)
    return int(queue(channel).queue_declare(passive=True).message_count)


class Depths:
    """Lengths of the task queues, read over one connection that is kept open."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self._app, self._queues = app, topology.task_queues()
        self._connection: Any = None

    def read(self) -> dict[str, int]:
        """Return routing key -> messages that wait, of the queues that exist; {} while the broker is away."""
        found: dict[str, int] = {}
        try:
            for queue in self._queues:
                try:
                    found[queue.routing_key] = waiting(self._connected(), queue)
                except amqp.NotFound:  # unused for a long time, as queues of ranks are in a streaming run
                    self.close()  # its channel is of no use any more
                    if not found:  # not even the first exists: none was declared
                        break
            return found
        except Exception as error:  # a display must never stop what it displays
            logger.debug("cannot read queue depths: %s", error)
            self.close()
            return {}

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._app.connection_for_read()
        # Left to itself, kombu would try again for many seconds, and the caller would wait.
        self._connection.ensure_connection(max_retries=1, interval_start=0)
        return self._connection

    def close(self) -> None:
        """Drop the connection; the next read makes a new one."""
        if self._connection is not None:
            self._connection.release()
            self._connection = None


def remove_run(
    app: Any,
    client: Any,
    topology: Topology,
    kept: Collection[str] = (),
    before_each: Callable[[], None] = lambda: None,
    queues: Collection[str] = (),
    exchanges: Collection[str] = (),
) -> None:
    """Delete every queue, exchange and Redis key of the run, and its shared memory on this host.

    Exclusive queues have gone with the processes that declared them.

    `client`: a Redis client of the run's results and pool. `kept`: keys that stay. `before_each` is called before every
    deletion and may raise to end this, as when another launcher has taken the run over meanwhile. `queues`,
    `exchanges`: further names on the broker, which neither the topology nor the run's keys contain. Raises BrokerError
    when a server is away: what is on it stays then, except task queues, which delete themselves after half an hour
    without a consumer.
    """
    problems = []
    acts: tuple[Callable[[], None], ...] = (
        lambda: _remove_shared(client, topology, before_each),
        lambda: _remove_from_broker(app, topology, kept, before_each, queues, exchanges),
        lambda: _remove_keys(client, topology, kept, before_each),
    )
    for act in acts:
        try:
            act()
        except (OperationalError, amqp.AMQPError, redis.RedisError, OSError) as error:
            problems.append(str(error))
    if problems:
        raise BrokerError(f"not all of run {topology.run} could be removed from the servers: {'; '.join(problems)}")


def _remove_shared(client: Any, topology: Topology, before_each: Callable[[], None]) -> None:
    before_each()
    remove_shared(client, topology)  # first: its name is one of the keys


def _remove_from_broker(
    app: Any,
    topology: Topology,
    kept: Collection[str],
    before_each: Callable[[], None],
    queues: Collection[str],
    exchanges: Collection[str],
) -> None:
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0)
        if connection.transport.driver_type == "redis":
            # Queues, bindings and unacknowledged messages are keys as well, maybe in another database.
            client = compat.redis_of(connection)
            _remove_keys(client, topology, kept, before_each)
        else:
            _remove_declared(app, connection, topology, before_each)
            for name in queues:
                before_each()
                _quietly(connection, lambda channel, name=name: channel.queue_delete(name))
            for name in exchanges:
                before_each()
                _quietly(connection, lambda channel, name=name: channel.exchange_delete(name))


def _remove_declared(app: Any, connection: Any, topology: Topology, before_each: Callable[[], None]) -> None:
    services: list[str] = []
    users: list[str] = []
    later: list[Any] = []
    with contextlib.suppress(redis.RedisError):  # the directory is away: the queues go by themselves in the end
        directory = Directory(app, topology)
        services = list(directory.known())
        later = [topology.delay_queue(*noted) for noted in directory.delays()]
        later += [topology.due_queue(spec.name) for spec in directory.known().values() if spec.delays]
        users = Retained(app, topology).names()
    dead = {topology.dead_queue(service.partition(".")[0]) for service in services}
    for queue in [*topology.declared(), *map(topology.service_queue, services), *dead, *later]:
        before_each()
        _quietly(connection, lambda channel, queue=queue: queue(channel).delete())
    of_users = {topology.event(name).name for name in users}
    for name in dict.fromkeys([*(exchange.name for exchange in exchanges(app, topology)), *of_users]):
        before_each()
        _quietly(connection, lambda channel, name=name: channel.exchange_delete(name))


def exchanges(app: Any, topology: Topology) -> list[Any]:
    """Return the exchanges of a run: those of tasks and calls, of Warren's own events, and of Celery's."""
    mailbox = app.control.mailbox
    events = [topology.event(name) for name in event_names(topology)]
    tasks = [topology.actor, topology.learner, topology.service, topology.dead]
    return [*tasks, *events, mailbox.exchange, mailbox.reply_exchange, topology.told]


def event_names(topology: Topology) -> list[str]:
    """Return the names of the events that Warren's own roles fire in a run."""
    players = [of_player(name, player) for name in (WEIGHTS, STATUS) for player in topology.players]
    return [WEIGHTS, STATUS, EVALUATION, *players]


def _remove_keys(client: Any, topology: Topology, kept: Collection[str], before_each: Callable[[], None]) -> None:
    found = client.scan_iter(match=f"{topology.key_prefix}*", count=1000)
    keys = [key for key in found if key.decode(errors="replace") not in kept]
    for start in range(0, len(keys), 1000):
        before_each()
        client.unlink(*keys[start : start + 1000])


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
