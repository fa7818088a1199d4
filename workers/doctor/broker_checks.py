"""Findings about a broker, judged from its facts by pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.rights import TABLE
from tasks.topology import Topology
from workers.doctor.broker_facts import ANSWER, BrokerFacts
from workers.doctor.findings import Finding, Level

OLDEST = (3, 9)  # oldest version that knows a private RabbitMQ's settings; 3.10 and 4.0 are tested
QUORUM_ALONE_TIMES_OUT = (4, 3)  # consumers of classic queues may hold a message as long as they like
NEAR = 0.9  # share of a limit from which on there is a warning
HANDLES_NEAR = 0.8
DISK_NEAR = 1 << 30  # bytes above the limit at which the broker refuses messages
LEAST_HOLD = 600.0  # s for which a paused learner, or one in a long update, may hold a message


def judge(facts: BrokerFacts, topology: Topology, *, calls: bool) -> Iterator[Finding]:
    """Yield the findings from AMQP. `calls`: whether the run calls services, as a league does."""
    yield _version(facts)
    yield _publishing(facts)
    yield _permissions(facts, calls)
    yield _queue_type(facts)
    yield _transient_queues(facts)


def judge_managed(facts: BrokerFacts, hold: float = LEAST_HOLD) -> Iterator[Finding]:
    """Yield the findings that need the management API or rabbitmqctl."""
    yield _alarms(facts)
    yield _memory(facts)
    yield _disk(facts)
    yield _handles(facts)
    yield _consumer_timeout(facts, hold)
    yield _deprecated(facts)


def judge_redis_broker() -> Finding:
    """Return the finding about a Redis that is the broker."""
    return Finding(
        "broker", Level.warning, "Redis is the broker: full queues refuse nothing, and a worker may stay silent "
        "after its connection was lost (Celery issues 8030, 8091, 10205)",
        "use RabbitMQ for runs of more than one machine or of many hours: broker=private or broker=external",
    )  # fmt: skip


def _version(facts: BrokerFacts) -> Finding:
    name = f"{facts.product} {facts.version}".strip()
    if facts.product != "RabbitMQ":
        return Finding(
            "broker version", Level.warning, f"{name} is not RabbitMQ", "untested; use RabbitMQ 3.10 or later"
        )
    if facts.numbers < OLDEST:
        return Finding("broker version", Level.error, f"{name} is too old", "use RabbitMQ 3.10 or later")
    return Finding("broker version", Level.ok, name)


def _publishing(facts: BrokerFacts) -> Finding:
    if facts.blocked is not None:
        return Finding(
            "publishing", Level.error, f"the broker blocks publishers: {facts.blocked}",
            "it is short of memory or disk, as `rabbitmqctl status` shows; free some, or raise "
            "vm_memory_high_watermark or lower disk_free_limit",
        )  # fmt: skip
    if facts.confirms is None:
        return Finding("publishing", Level.unseen, "not tried", "needs permission to write to the default exchange")
    if not facts.confirms:
        return Finding("publishing", Level.error, "a message was not confirmed in time", "see the broker's log")
    return Finding("publishing", Level.ok, "confirmed")


def _permissions(facts: BrokerFacts, calls: bool) -> Finding:
    if facts.blocked is not None or facts.confirms is False:
        return Finding("permissions", Level.unseen, "not tried", "needs a broker that accepts messages")
    remedy = r"rabbitmqctl set_permissions -p VHOST USER '^warren\.' '^(warren\.|amq\.default$)' '^warren\.'"
    if facts.role is not None and facts.refused == (() if TABLE[facts.role].answers_calls else (ANSWER,)):
        return Finding("permissions", Level.ok, f"the user has the rights of the role {facts.role}")
    if facts.refused == (ANSWER,) and not calls:
        found = f"the user may not {ANSWER}, so calls of services would get no answer"
        return Finding("permissions", Level.warning, found, remedy)
    if facts.refused:
        return Finding("permissions", Level.error, f"the user may not {'; may not '.join(facts.refused)}", remedy)
    return Finding("permissions", Level.ok, "the user has the permissions that a run needs")


def _queue_type(facts: BrokerFacts) -> Finding:
    check, found = "default queue type", facts.default_queue_type
    if found is None:
        return Finding(check, Level.unseen, "unknown", "needs permission to declare queues")
    return Finding(check, Level.ok, found if found == "classic" else f"{found}; a run's queues set their own type")


def _transient_queues(facts: BrokerFacts) -> Finding:
    check = "transient queues"
    if facts.denies_transient_queues is None:
        return Finding(check, Level.unseen, "not tried", "needs permission to declare queues")
    if not facts.denies_transient_queues:
        return Finding(check, Level.ok, "permitted, also shared ones")
    return Finding(
        check, Level.warning, "shared ones are denied: Celery's remote control and Flower may need them",
        "rabbitmq.conf: deprecated_features.permit.transient_nonexcl_queues = true",
    )  # fmt: skip


def _alarms(facts: BrokerFacts) -> Finding:
    if facts.alarms is None:
        return _unseen("alarms", facts)
    if not facts.alarms:
        return Finding("alarms", Level.ok, "none")
    return Finding(
        "alarms", Level.error, f"{', '.join(facts.alarms)}: the broker blocks publishers",
        "free memory or disk on its machine, or raise vm_memory_high_watermark or lower disk_free_limit",
    )  # fmt: skip


def _memory(facts: BrokerFacts) -> Finding:
    used, limit = facts.memory_used, facts.memory_limit
    if used is None or not limit:
        return _unseen("broker's memory", facts)
    found = f"{size(used)} of {size(limit)} until it blocks publishers"
    if used >= NEAR * limit:
        return Finding(
            "broker's memory", Level.warning, found, "raise vm_memory_high_watermark, or give it more memory"
        )
    return Finding("broker's memory", Level.ok, found)


def _disk(facts: BrokerFacts) -> Finding:
    if facts.disk_free is None or facts.disk_limit is None:
        return _unseen("broker's disk", facts)
    found = f"{size(facts.disk_free)} free; below {size(facts.disk_limit)} it blocks publishers"
    if facts.disk_free < facts.disk_limit + DISK_NEAR:
        return Finding("broker's disk", Level.warning, found, "free some there, or lower disk_free_limit")
    return Finding("broker's disk", Level.ok, found)


def _handles(facts: BrokerFacts) -> Finding:
    if not facts.handles or facts.handles_used is None:  # RabbitMQ 4 no longer counts them itself
        return _unseen("broker's file handles", facts)
    found = f"{facts.handles_used:,} of {facts.handles:,}"
    if facts.handles_used >= HANDLES_NEAR * facts.handles:
        return Finding("broker's file handles", Level.warning, found, "raise the limit of its service (LimitNOFILE)")
    return Finding("broker's file handles", Level.ok, found)


def _consumer_timeout(facts: BrokerFacts, hold: float) -> Finding:
    check = "consumer timeout"
    if facts.numbers >= QUORUM_ALONE_TIMES_OUT and facts.default_queue_type == "classic":
        return Finding(check, Level.ok, "none for classic queues")
    if facts.consumer_timeout is None:
        why = facts.unseen.get("rabbitmqctl", "needs rabbitmqctl (--rabbitmqctl COMMAND)")
        return Finding(check, Level.unseen, "RabbitMQ's own default is 30 min", why)
    if facts.consumer_timeout == float("inf"):
        return Finding(check, Level.ok, "none")
    found = f"{facts.consumer_timeout:,.0f} s: a worker that holds a message longer loses its channel"
    if facts.consumer_timeout < hold:
        remedy = f"set consumer_timeout in rabbitmq.conf to at least {hold * 1000:.0f} (ms)"
        return Finding(check, Level.warning, found, remedy)
    return Finding(check, Level.ok, found)


def _deprecated(facts: BrokerFacts) -> Finding:
    check = "deprecated features"
    if facts.deprecated_in_use is None:
        old = facts.numbers < (3, 13)
        why = "needs RabbitMQ 3.13 or later" if old else facts.unseen.get("management", "needs the management plugin")
        return Finding(check, Level.unseen, "features in use that later versions deny", why)
    if facts.deprecated_in_use:
        return Finding(
            check, Level.warning, f"in use: {', '.join(facts.deprecated_in_use)}",
            "by Warren or by other users of the broker; RabbitMQ 4.3 denies most of them",
        )  # fmt: skip
    return Finding(check, Level.ok, "none in use")


def _unseen(check: str, facts: BrokerFacts) -> Finding:
    return Finding(check, Level.unseen, "unknown", "; ".join(facts.unseen.values()) or "not reported by this version")


def size(number: float) -> str:
    """Return a number of bytes as text, in B, KiB, MiB or GiB."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
