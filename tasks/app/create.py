"""The Celery app of one run: its serializer, its routes, its bounds. Every role and every client builds it here."""

from __future__ import annotations

from typing import Any

from celery import Celery

from tasks import codec, compat
from tasks.app.celery_consumer import Task
from tasks.app.control import RunControl, RunEvents
from tasks.app.formats import store_in_kind
from tasks.app.publishing import RETRY_POLICY, RunAMQP
from tasks.app.redelivery import Deliveries
from tasks.app.uncompressed import refuse_compressed_results
from tasks.codec import claim_check
from tasks.topology import DEAD_EXPIRES, Topology
from warren import redis_client
from warren.redis_client import Patience

HEARTBEAT = 30  # s between AMQP heartbeats; the event loop is never busy (see pool.py), so silence means a dead peer
RESULT_EXPIRES = 3600  # s that an unfetched result stays in Redis
CLAIM_EXPIRES = 3600  # s that the bytes behind a claim check stay in Redis
CLAIM_THRESHOLD = 1 << 20  # bytes; RabbitMQ 4 refuses messages over 16 MiB, and small messages move faster
REDIS_TRIES = 15  # tries while a Redis restarts: about 12 s
ENDS_WITHIN = 8.0  # s that a process which was told to stop waits for a Redis that is away
REDELIVER_AFTER = 60  # s until a Redis broker hands on what a dead worker held (RabbitMQ does so at once)


class RunApp(compat.App):
    """A Celery app whose result backend waits for a Redis that restarts, and refuses compressed results.

    Celery's does not wait, and a worker that cannot store a result ends with "Unrecoverable error".
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        self.patience = Patience(REDIS_TRIES)
        super().__init__(*given, **named)

    def hurry(self) -> None:
        """Wait for an unreachable Redis no longer than ENDS_WITHIN in all, since this process was told to stop."""
        self.patience.hurry(ENDS_WITHIN)

    def prepare_backend(self, backend: Any) -> None:
        compat.retry_redis(backend, self.patience)
        refuse_compressed_results(backend)
        store_in_kind(backend)


def create_app(
    topology: Topology,
    broker_url: str,
    redis_url: str,
    *,
    task_events: bool = False,
    prefetch: int = 1,
    claim_threshold: int = CLAIM_THRESHOLD,
    redeliver_after: float = REDELIVER_AFTER,
) -> Celery:
    """Create the Celery app of `topology.run`.

    `prefetch`: messages a worker may hold unacknowledged. `task_events`: send the events that Flower shows.
    Payloads over `claim_threshold` bytes go through Redis (see claim_check.py). `redeliver_after`: s that a worker may
    hold a message before a Redis broker takes the worker for dead; longer than any task runs.
    """
    claims = claim_check.install(
        claim_check.ClaimStore(
            redis_client.connect(redis_url),
            prefix=f"{topology.key_prefix}claim:",
            ttl_seconds=CLAIM_EXPIRES,
            threshold=claim_threshold,
            kept_seconds=DEAD_EXPIRES,
        )
    )
    serializer = codec.register(claims)
    own = {"control": RunControl, "events": RunEvents, "amqp": RunAMQP, "task_cls": Task}
    urls = {"broker": redis_client.complete(broker_url), "backend": redis_client.complete(redis_url)}
    app = RunApp("warren", **urls, set_as_current=True, **own)
    app.conf.update(_settings(topology, serializer))
    app.conf.update(
        worker_prefetch_multiplier=prefetch,
        broker_transport_options=_transport_options(broker_url, topology, redeliver_after),
        # Off by default: events cost more than half of the throughput.
        worker_send_task_events=task_events,
        task_send_sent_event=task_events,
    )
    app.warren_topology = topology
    app.warren_claims = claims
    app.warren_deliveries = Deliveries(redis_url, topology)
    app.finalize()
    return app


def _settings(topology: Topology, serializer: str) -> dict[str, Any]:
    """Return the settings of Celery that are the same in every process of the run."""
    return {
        # One wire format for tasks and results; Celery's own control messages and events are JSON. Never pickle.
        "task_serializer": serializer,
        "result_serializer": codec.STORED,  # never a claim check: a result lies in Redis itself, however long
        "accept_content": [codec.NAME, "json"],
        "result_accept_content": [codec.STORED, codec.NAME, "json"],
        # Routes and queues come from the topology alone.
        "task_routes": [topology.route],
        "task_queues": topology.task_queues(),
        "task_default_queue": topology.actor_queue().name,
        "task_create_missing_queues": False,
        "control_exchange": topology.control,
        "event_exchange": topology.celery_events,
        "event_queue_prefix": topology.celery_events,
        # A task is acknowledged when it is done; what failed goes to the dead-letter exchange.
        "task_acks_late": True,
        "task_acks_on_failure": False,
        "task_acks_on_timeout": False,
        "task_reject_on_worker_lost": True,
        "worker_detect_quorum_queues": topology.queue_type == "quorum",  # they refuse a prefetch of a whole channel
        # Results live in Redis under the run's prefix, and not for long.
        "result_expires": RESULT_EXPIRES,
        "result_chord_join_timeout": 60.0,
        "result_backend_transport_options": {"global_keyprefix": topology.key_prefix},
        # Wait for a broker that restarts.
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_heartbeat": HEARTBEAT,
        "task_publish_retry_policy": dict(RETRY_POLICY),
        "worker_consumer": "tasks.app.celery_consumer:Consumer",
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }


def _transport_options(broker_url: str, topology: Topology, redeliver_after: float) -> dict[str, Any]:
    if broker_url.startswith("redis"):
        # Throttle 1: kombu looks for what a dead worker held every 10 s, and not every 100.
        return {
            "global_keyprefix": topology.key_prefix,
            "visibility_timeout": redeliver_after,
            "unacked_restore_throttle": 1,
        }
    return {"confirm_publish": True}  # a publish returns when the broker has the message
