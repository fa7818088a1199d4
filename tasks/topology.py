"""The table of all exchanges, queues, bindings and bounds of a run. Nothing else names one.

| exchange    | type   | queue (= routing key)  | carries                  | from -> to                 | bound
|-------------|--------|------------------------|--------------------------|----------------------------|------------
| .actor      | direct | .actor.POLICY          | rollout tasks            | chords -> actors           | time to live
| .learner    | direct | .learner.PLAYER        | segments, learn tasks    | actors, chords -> learners | refuses more
| .learner    | direct | .learner.PLAYER.rank-N | its rounds' learn tasks  | chords -> one of several   | refuses more
| .service    | direct | .service.ROLE.METHOD   | calls of services        | anyone -> their workers    | by the message
| .service    | direct | .delay.MS.ROLE.METHOD  | one-way calls to be run later | anyone -> the broker    | time to live
| .service    | direct | .due.ROLE.METHOD       | those whose time has come   | the broker -> their workers |
| .event.NAME | fanout | .event.NAME.SUBSCRIBER | weights, status, others  | learners, all -> whoever   | drops old
| .dead       | topic  | .dead.ROLE             | what failed for good     | the broker -> a person     | drops old
| .control    | fanout | Celery's own           | remote control           | anyone -> workers          |
| .events     | topic  | Celery's own           | worker and task events   | workers -> Flower, anyone  |
| .probe      | direct | .probe.ID              | what `doctor` tries      | `doctor` -> itself         | gone in 60 s

Every name begins with `warren.RUN`, so that two runs on the same servers never see each other and one permission
pattern (`^warren\\.RUN\\.`) fits one run. Redis keys begin with `warren.RUN:` for the same reason.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kombu import Exchange, Queue

from warren.errors import ConfigurationError, UnknownName

UNUSED_EXPIRES = 1800.0  # s; a queue that is not consumed for so long deletes itself, should a run die uncleanly
DEAD_EXPIRES = 7 * 86_400.0  # s; the same for dead letters, which wait for a person
DELAY_EXPIRES = 60.0  # s that a queue of delayed calls is kept beyond its last sender's declaration and its delay
PROBE_EXPIRES = 60.0  # s; see probe_queue
DEAD_LENGTH = 10_000  # messages per role kept for a person to read
EVENT_LENGTH = 16  # messages that wait for a slow subscriber; of events in up to 8 parts, one is whole in any 16
# All queues but a probe name their type; else the virtual host's default queue type would decide. Quorum queues count
# every delivery, those to workers that merely held a message too, and drop it after 20; no exclusive queue can be one.
CLASSIC = {"x-queue-type": "classic"}
# On a cluster of brokers a classic queue is gone while its node is; a quorum queue is kept by a majority of the nodes.
# The process that runs a message counts its deliveries, so the broker's own limit is out of reach here.
QUORUM: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}
DURABLE: dict[str, dict[str, Any]] = {"classic": CLASSIC, "quorum": QUORUM}
QUEUES_VARIABLE = "WARREN_QUEUES"  # belongs to the broker's URL: the same for all processes of a run
ONE_WAY_LENGTH = 10_000  # one-way calls per service that may wait before the broker refuses more
WEIGHTS = "weights"  # an event: {"player", "version", "step", "data": safetensors bytes}
STATUS = "status"  # an event: the learner's figures, several times a second; its last carries the outcome of the run
EVALUATION = "evaluation"  # an event: the scores that a league's evaluator has measured
ROLES = ("actor", "learner")  # consumers of tasks; the first part of a task's name says which
ROLE_TASKS = ("rollout", "learn", "round_failed")  # these go to their role's queue; every other name is a service

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


def _given_type() -> str:
    return os.environ.get(QUEUES_VARIABLE) or "classic"


@dataclass(frozen=True)
class Topology:
    """The names of one run. `learner_bound`: messages that may wait for a learner before publishers are refused.

    `players`: those that learn in this run, each with a queue of its own and with so many `learners`. `queue_type` of
    queues that outlive a connection: classic or quorum; by default that of WARREN_QUEUES.
    """

    run: str
    learner_bound: int = 64
    players: tuple[str, ...] = ("main",)
    learners: int = 1
    queue_type: str = field(default_factory=_given_type)

    def __post_init__(self) -> None:
        if self.queue_type not in DURABLE:
            raise UnknownName(f"type of queues ({QUEUES_VARIABLE})", self.queue_type, DURABLE)
        if not _NAME.fullmatch(self.run):
            raise ConfigurationError(
                f"run: {self.run!r} cannot name a run; use 1 to 80 letters, digits, '-' and '_', no dots or spaces"
            )

    @property
    def prefix(self) -> str:
        """Return the first part of every exchange and queue name."""
        return f"warren.{self.run}"

    @property
    def key_prefix(self) -> str:
        """Return the first part of every Redis key."""
        return key_prefix(self.run)

    @property
    def actor(self) -> Exchange:
        """Return the direct exchange of rollout tasks. Persistent: a chord's round outlives a broker restart."""
        return Exchange(f"{self.prefix}.actor", "direct", durable=True, delivery_mode=2)

    @property
    def learner(self) -> Exchange:
        """Return the direct exchange of trajectory segments. Persistent: a confirmed segment outlives the broker."""
        return Exchange(f"{self.prefix}.learner", "direct", durable=True, delivery_mode=2)

    @property
    def service(self) -> Exchange:
        """Return the direct exchange of services. A call is transient: its caller waits, and sends it again."""
        return Exchange(f"{self.prefix}.service", "direct", durable=True, delivery_mode=1)

    @property
    def dead(self) -> Exchange:
        """Return the topic exchange to which RabbitMQ moves what was rejected or expired, with an x-death header."""
        return Exchange(f"{self.prefix}.dead", "topic", durable=True)

    @property
    def control(self) -> str:
        """Return the first part of the names of Celery's remote control (see control.py)."""
        return f"{self.prefix}.control"

    @property
    def celery_events(self) -> str:
        """Return Celery's topic exchange of worker and task events, and the first part of the names of its queues."""
        return f"{self.prefix}.events"

    @property
    def told(self) -> Exchange:
        """Return the exchange `celery_events`, as Celery declares it."""
        return Exchange(self.celery_events, "topic")

    def event(self, name: str) -> Exchange:
        """Return the fanout exchange of the event `name`."""
        return Exchange(f"{self.prefix}.event.{name}", "fanout", durable=True, delivery_mode=1)

    def actor_queue(self, policy: str = "main") -> Queue:
        """Return the queue of rollout tasks for actors of `policy`."""
        return self._queue(self.actor, f"actor.{policy}")

    def learner_queue(self, player: str = "main") -> Queue:
        """Return the queue of segments for the learners of `player`; over `learner_bound` the broker refuses more."""
        return self._queue(self.learner, f"learner.{player}", max_length=self.learner_bound, overflow="reject-publish")

    def rank_queue(self, player: str, learner: int) -> Queue:
        """Return the queue of one of several learners' rounds; the first of `player` has the player's own queue."""
        if learner == 0:
            return self.learner_queue(player)
        key = f"learner.{player}.rank-{learner}"
        return self._queue(self.learner, key, max_length=self.learner_bound, overflow="reject-publish")

    def service_queue(
        self, name: str, response: bool = True, bound: int = ONE_WAY_LENGTH, priorities: int = 0
    ) -> Queue:
        """Return the queue of calls of service `name` (ROLE.METHOD), for all workers that serve it.

        A caller that waits for an answer hears of every failure and nearly always sets a time to live, so those queues
        have no dead-letter exchange. They have no bound either: a refusal could only be told by confirms on the channel
        of the answers, at the cost of every call. Calls without an answer are bounded: over `bound` the
        broker refuses more. With `priorities` the broker delivers calls of a higher level first. Raises
        ConfigurationError for priorities of quorum queues, which have none.
        """
        if priorities and self.queue_type == "quorum":
            raise ConfigurationError(
                f"{name}: priorities={priorities}: quorum queues have no levels of priority; leave it out, or have "
                f"classic queues ({QUEUES_VARIABLE}=classic)"
            )
        bounds: dict[str, Any] = {} if response else {"max_length": bound, "overflow": "reject-publish"}
        return self._queue(
            self.service, name, dead_letters=not response, label=f"service.{name}", priorities=priorities, **bounds
        )

    def delay_queue(self, name: str, milliseconds: int) -> Queue:
        """Return the queue of one-way calls of `name` delayed by so many ms; the broker then moves them to `due_queue`.

        Each sender declares it first, which keeps it until the last of its calls has left.
        """
        key = f"delay.{milliseconds}.{name}"
        then = {"x-dead-letter-exchange": self.service.name, "x-dead-letter-routing-key": f"due.{name}"}
        return Queue(
            f"{self.prefix}.{key}",
            self.service,
            routing_key=key,
            durable=True,
            message_ttl=milliseconds / 1000.0,
            expires=milliseconds / 1000.0 + DELAY_EXPIRES,
            queue_arguments={**DURABLE[self.queue_type], **then},
        )

    def due_queue(self, name: str, priorities: int = 0) -> Queue:
        """Return the queue of delayed one-way calls of service `name` that are due.

        It refuses none, since a call that the broker moves to a queue that refuses it is lost, and waits longer for a
        worker.
        """
        dead = {"x-dead-letter-exchange": self.dead.name, "x-dead-letter-routing-key": name}
        levels = {"x-max-priority": priorities - 1} if priorities else {}
        return Queue(
            f"{self.prefix}.due.{name}",
            self.service,
            routing_key=f"due.{name}",
            durable=True,
            expires=DEAD_EXPIRES,
            queue_arguments={**DURABLE[self.queue_type], **dead, **levels},
        )

    def dead_queue(self, role: str) -> Queue:
        """Return the queue of the dead letters of `role`."""
        return Queue(
            f"{self.prefix}.dead.{role}",
            self.dead,
            routing_key=f"{role}.#",
            durable=True,
            expires=DEAD_EXPIRES,
            max_length=DEAD_LENGTH,
            queue_arguments={**DURABLE[self.queue_type], "x-overflow": "drop-head"},
        )

    def event_queue(self, name: str, subscriber: str, length: int = EVENT_LENGTH) -> Queue:
        """Return a new queue of one subscriber, gone with its connection; it holds the newest `length` messages."""
        return Queue(
            f"{self.prefix}.event.{name}.{subscriber}.{uuid.uuid4().hex[:6]}",
            self.event(name),
            durable=False,
            exclusive=True,
            auto_delete=True,
            max_length=length,
            queue_arguments={**CLASSIC, "x-overflow": "drop-head"},
        )

    def probe_queue(self, exclusive: bool = False) -> Queue:
        """Return a queue with its own exchange, to try on a broker what a run does; both soon delete themselves."""
        return Queue(
            f"{self.prefix}.probe.{uuid.uuid4().hex[:6]}",
            Exchange(f"{self.prefix}.probe", "direct", durable=False, auto_delete=True),
            routing_key="probe",
            durable=not exclusive,
            exclusive=exclusive,
            auto_delete=exclusive,
            expires=PROBE_EXPIRES,
        )

    def task_queues(self) -> list[Queue]:
        """Return the queues of tasks that name no address of their own."""
        ranks = range(self.learners)
        return [self.actor_queue(), *(self.rank_queue(player, rank) for player in self.players for rank in ranks)]

    def key_of(self, routing_key: str) -> str:
        """Return a message's key in this table, also if it came through the default exchange by its queue's name."""
        return routing_key.removeprefix(f"{self.prefix}.")

    def declared(self) -> list[Queue]:
        """Return the queues that every role declares at its start, in the order of the table."""
        return [*self.task_queues(), *(self.dead_queue(role) for role in ROLES)]

    def route(
        self,
        name: str,
        args: Any = None,
        kwargs: Any = None,
        options: Mapping[str, Any] | None = None,
        task: Any = None,
        **__: Any,
    ) -> dict[str, Any] | None:
        """Route a task for Celery: `actor.rollout` and `learner.learn` to their queues, services by name."""
        role, _, method = name.partition(".")
        if method in ROLE_TASKS:
            if role == "actor":
                return address(self.actor_queue())
            if role == "learner":
                return address(self.learner_queue())
        if not method or role == "celery":
            return None
        # Not the queue itself: the sender would have to know its bounds to declare it.
        return {"exchange": self.service.name, "routing_key": name}

    def _queue(
        self,
        exchange: Exchange,
        key: str,
        overflow: str | None = None,
        dead_letters: bool = True,
        label: str | None = None,
        priorities: int = 0,
        **bounds: Any,
    ) -> Queue:
        """Return a durable queue bound with `key`, called PREFIX.KEY, or PREFIX.LABEL where a label is given."""
        # Dead letters get this key however a message came; otherwise they would miss the dead-letter queues' bindings.
        dead = {"x-dead-letter-exchange": self.dead.name, "x-dead-letter-routing-key": key}
        arguments = {**DURABLE[self.queue_type], **(dead if dead_letters else {})}
        if overflow:
            arguments["x-overflow"] = overflow
        if priorities:
            arguments["x-max-priority"] = priorities - 1
        return Queue(
            f"{self.prefix}.{label or key}",
            exchange,
            routing_key=key,
            durable=True,
            expires=UNUSED_EXPIRES,
            queue_arguments=arguments,
            **bounds,
        )


def key_prefix(run: str) -> str:
    """Return the first part of every Redis key of `run`; for "*" a pattern of those of every run."""
    return f"warren.{run}:"


def foreign_queue(name: str) -> Queue:
    """Return a queue that is not the run's, to send to by the default exchange: it is never declared."""
    return Queue(name, no_declare=True)


def address(queue: Queue) -> dict[str, Any]:
    """Return Celery's options to send to `queue` by its exchange; with a queue alone Celery uses the default one."""
    return {"queue": queue, "exchange": queue.exchange.name, "routing_key": queue.routing_key}
