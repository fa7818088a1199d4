"""The connections of a process in its run: names, Celery app, Redis, model pool, ledger and events."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger
from redis.backoff import NoBackoff
from redis.retry import Retry

from league.models.pool import CACHE_BYTES, Pool
from tasks.admin.cleanup import exchanges
from tasks.app import REDELIVER_AFTER, create_app
from tasks.brokers.declaring import declare
from tasks.events import EventDispatcher
from tasks.topology import Topology
from tasks.worker.celery_worker import make_worker, run_worker
from tasks.worker.task_events import given_rate
from warren import redis_client, stop_signals
from workers.config.schema import Config
from workers.runtime import lease
from workers.runtime.lease import Lease
from workers.runtime.segment_ledger import Ledger

logger = get_logger(__name__)

EVENT_RATE = 0.01  # share of service calls with events: events for all would cost more than half of their speed
HELD = 2.0  # times round_timeout that an actor may hold a rollout before a Redis broker hands it to another
PLAYER = "main"  # the one player of a run without a league


class Session:
    """The connections of one process in one run."""

    def __init__(self, config: Config, broker_url: str, redis_url: str, cache_bytes: int = CACHE_BYTES) -> None:
        """`cache_bytes`: bound on the cache of models that this process has read from the pool."""
        assert config.run is not None
        self.config, self.redis_url = config, redis_url
        self.topology = topology_of(config)
        self.app = create_app(
            self.topology,
            broker_url,
            redis_url,
            task_events=watched(config),
            redeliver_after=max(REDELIVER_AFTER, HELD * config.round_timeout),
        )
        self.redis = redis_client.connect(redis_url, retry=self.app.patience)
        self.leases = lease.connect(redis_url)
        replica = redis_client.connect_to_replica(redis_url, retry=Retry(NoBackoff(), 0))
        self.pool = Pool(self.redis, self.topology.key_prefix, replica=replica, cache_bytes=cache_bytes)
        self.ledger = Ledger(self.redis, self.topology.key_prefix)
        self.events = EventDispatcher(self.app, self.topology)

    def hurry(self) -> None:
        """Wait only a few seconds more for a Redis that is away, now that this process was told to stop."""
        self.app.hurry()

    def stopped_by_signals(self) -> threading.Event:
        """Return an event that SIGTERM and SIGINT set from now on; for a role that serves no queue."""
        stopping = threading.Event()

        def told(_: int) -> None:
            self.hurry()
            stopping.set()

        stop_signals.hear(told)
        return stopping

    def lease(self, work: str) -> Lease:
        """Return the lease of `work` in this run."""
        return Lease(self.leases, self.topology.key_prefix, work)

    def declare(self, stopping: threading.Event | None = None) -> bool:
        """Declare the topology's queues with their exchanges; this is harmless if they exist.

        On RabbitMQ the run's other exchanges are declared, too; users with the rights of one role may only look for
        them. A user that may not declare waits until another has done it; returns False if `stopping` is set meanwhile.
        """
        stop = stopping or threading.Event()
        with self.app.connection_for_write() as connection:
            entities = self.topology.declared()
            if connection.transport.driver_type == "amqp":
                entities += exchanges(self.app, self.topology)
            return all(declare(connection, entity, stop.wait) for entity in entities)

    def work(
        self, name: str, queue: Any, on_ready: Callable[[], None], on_stopping: Callable[[], None], held: int = 1
    ) -> int:
        """Serve `queue` as a Celery worker until told to stop; return the exit status.

        `on_ready` runs once the worker consumes, `on_stopping` when it has been told to stop but still finishes what
        it holds. `held`: messages that it may hold unacknowledged.
        """
        worker = make_worker(self.app, name, [queue.name], log_level=self.config.log_level, prefetch_multiplier=held)
        return run_worker(worker, on_ready, on_stopping)


def watched(config: Config) -> bool:
    """Return whether to send task events, as Flower or the user reads them."""
    return config.task_events or config.flower_port is not None or bool(config.event_rate)


def event_rate(config: Config) -> float:
    """Return the share of calls of this run's services that send task events, 0 to 1."""
    if not watched(config):
        return 0.0
    rate = config.event_rate if config.event_rate is not None else given_rate()
    return EVENT_RATE if rate is None else rate


def topology_of(config: Config) -> Topology:
    """Return the names and bounds of the configured run."""
    assert config.run is not None
    # Nothing here may depend on the number of actors or on how they sample: the first process declares the queues, and
    # the broker refuses a different declaration.
    players = (PLAYER,) if config.league is None else tuple(dict.fromkeys([*config.league["players"], config.player]))
    return Topology(config.run, players=players, learners=config.most_learners)


def source_name(number: int | None, role: str = "actor") -> str:
    """Return a name for this process of a role, unlike that of any other or earlier process."""
    return f"{role}-{number or 0}-{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
