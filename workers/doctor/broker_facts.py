"""Facts about a RabbitMQ (None: unknown), gathered over AMQP; management.py and rabbitmqctl.py add others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import amqp
import kombu

from tasks.rights import role_of
from tasks.topology import Topology
from workers.servers.checks import CHECK_TIMEOUT, answering

CONFIRM_WITHIN = 5.0  # s; a healthy broker confirms an unroutable message within milliseconds


@dataclass(frozen=True)
class BrokerFacts:
    """Facts about a broker: sizes in bytes, times in seconds."""

    product: str = ""
    version: str = ""
    # By AMQP.
    confirms: bool | None = None  # a publish was confirmed
    blocked: str | None = None  # the broker's reason for blocking publishers
    refused: tuple[str, ...] = ()  # actions on the run's names that the user may not do
    default_queue_type: str | None = None
    denies_transient_queues: bool | None = None
    # By the management API or rabbitmqctl.
    alarms: tuple[str, ...] | None = None
    memory_used: int | None = None
    memory_limit: int | None = None
    disk_free: int | None = None
    disk_limit: int | None = None
    handles_used: int | None = None
    handles: int | None = None
    deprecated_in_use: tuple[str, ...] | None = None
    # By rabbitmqctl alone.
    consumer_timeout: float | None = None  # infinite: switched off
    unseen: dict[str, str] = field(default_factory=dict)  # "management" or "rabbitmqctl" -> why it gave no facts
    role: str | None = None  # its user's role, if the user has the rights of one alone

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the version as numbers: (4, 0, 5) for "4.0.5"."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:3])


def over_amqp(url: str, topology: Topology) -> BrokerFacts:
    """Gather facts by actions of a run, with its names. Raises amqp.AMQPError or OSError if the broker goes away."""
    url = answering(url)
    facts = _publishing(url)
    if facts.blocked or facts.confirms is False:  # publishers wait, as would the checks below
        return facts
    connection = _connect(url)
    try:
        known = role_of(kombu.Connection(url).userid)
        facts = replace(
            facts,
            role=known and known[0],
            refused=tuple(what for what, attempt in ATTEMPTS if _refused(connection, topology, attempt)),
            default_queue_type=_default_queue_type(connection, topology),
        )
    finally:
        connection.close()
    return replace(facts, denies_transient_queues=_denies_transient_queues(url, topology))


def _connect(url: str, **options: Any) -> Any:
    made = kombu.Connection(url, connect_timeout=CHECK_TIMEOUT)
    made.transport_options.update(read_timeout=CHECK_TIMEOUT, write_timeout=CHECK_TIMEOUT, **options)
    return made.transport.establish_connection()


def _publishing(url: str) -> BrokerFacts:
    """Publish on a separate connection, as the broker stops reading from one that it blocks; return the facts.

    Two messages are published: the first is what gets the connection blocked, and may be confirmed before that is said.
    """
    reasons: list[str] = []
    confirmed: list[Any] = []
    connection = _connect(url, on_blocked=reasons.append)
    try:
        about = connection.server_properties
        facts = BrokerFacts(str(about.get("product", "AMQP broker")), str(about.get("version", "")))
        channel = connection.channel()
        channel.confirm_select()
        channel.events["basic_ack"].add(lambda *told: confirmed.append(told))
        limit = time.monotonic() + CONFIRM_WITHIN
        for number in (1, 2):
            channel.basic_publish(amqp.Message(b""), exchange="", routing_key="warren.doctor")  # to no queue: dropped
            while len(confirmed) < number and not reasons and time.monotonic() < limit:
                try:
                    connection.drain_events(timeout=max(0.01, limit - time.monotonic()))
                except TimeoutError:
                    break
        return replace(facts, confirms=len(confirmed) == 2, blocked=reasons[0] if reasons else None)
    except amqp.AccessRefused:  # by the default exchange; `ATTEMPTS` tries it again
        return facts
    finally:
        if reasons:
            connection.collect()  # a broker that has blocked a connection does not read connection.close either
        else:
            connection.close()


def _declares(channel: Any, topology: Topology) -> None:
    queue = topology.probe_queue(exclusive=True)(channel)
    queue.exchange.declare()
    queue.queue_declare()


def _transfers(channel: Any, topology: Topology) -> None:
    queue = topology.probe_queue(exclusive=True)(channel)
    queue.declare()
    queue.exchange.publish(queue.exchange.Message("", delivery_mode=1), routing_key=queue.routing_key)
    queue.get(no_ack=True)  # waits for an answer; a refusal of the publish comes before it


def _answers(channel: Any, topology: Topology) -> None:
    """Publish through the default exchange, as a service answers a call."""
    channel.basic_publish(amqp.Message(b""), exchange="", routing_key=topology.probe_queue().name)  # to no queue
    channel.basic_qos(0, 1, False)  # waits for an answer, as above


ANSWER = "publish to the default exchange"
ATTEMPTS: tuple[tuple[str, Callable[[Any, Topology], None]], ...] = (
    ("declare queues and exchanges", _declares),
    ("bind, publish and consume", _transfers),
    (ANSWER, _answers),
)


def _refused(connection: Any, topology: Topology, attempt: Callable[[Any, Topology], None]) -> bool:
    # A channel dies with a refusal, so each attempt has its own.
    channel = connection.channel()
    try:
        attempt(channel, topology)
        return False
    except amqp.AccessRefused:
        return True
    finally:
        if channel.is_open:
            channel.close()


def _default_queue_type(connection: Any, topology: Topology) -> str | None:
    """Return the vhost's default queue type.

    It is found by declaring a queue without a type and declaring it again as classic.
    """
    queue = topology.probe_queue()
    channel = connection.channel()
    try:
        queue(channel).queue_declare()
        queue.queue_arguments = {"x-queue-type": "classic"}
        queue(channel).queue_declare()
        found: str | None = "classic"
    except amqp.PreconditionFailed as error:
        match = re.search(r"current is '(\w+)'", str(error))
        found = match[1] if match else None
    except amqp.AMQPError:
        return None
    finally:
        if channel.is_open:
            channel.close()
    channel = connection.channel()
    queue(channel).delete()
    channel.close()
    return found


def _denies_transient_queues(url: str, topology: Topology) -> bool | None:
    """Return whether transient shared queues are denied: RabbitMQ then closes the connection (541)."""
    queue = topology.probe_queue()
    queue.durable, queue.auto_delete = False, True
    connection = _connect(url)
    try:
        channel = connection.channel()
        queue(channel).queue_declare()
        queue(channel).delete()
        return False
    except amqp.AccessRefused:
        return None
    except (amqp.InternalError, amqp.PreconditionFailed, amqp.AMQPNotImplementedError, amqp.NotAllowed):
        return True
    finally:
        connection.collect()
