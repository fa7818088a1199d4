"""The rights of each role on RabbitMQ: which names of topology.py it may declare, write to and read.

RabbitMQ has three patterns of names for a user: `configure` (declare and delete), `write` (publish to an exchange; bind
a queue), `read` (consume or empty a queue; bind to an exchange). Every name here comes from a method of Topology.

A user is called warren.RUN.ROLE or, on RabbitMQ alone, warren.ROLE, which has the role's rights in every run. From the
user's name a connection knows what it may declare; it only checks that the rest exists (tasks/brokers/declaring.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.topology import EVALUATION, STATUS, WEIGHTS, Topology
from warren.errors import UnknownName

# RabbitMQ's name of the default exchange. Processes that answer calls publish to it, and may reach any queue by name.
DEFAULT_EXCHANGE = "amq.default"
_ANY = "\0"  # in a name: any text, or none
_USER = re.compile(r"warren\.(?:(?P<run>[A-Za-z0-9_-]+)\.)?(?P<role>[a-z]+)")
_RUN = Topology("run")


@dataclass(frozen=True)
class Rights:
    """The names of one role in _RUN, each a literal text in which _ANY stands for any."""

    configure: tuple[str, ...]
    write: tuple[str, ...]
    read: tuple[str, ...]
    tag: str = ""  # user tag in RabbitMQ's management API

    @property
    def answers_calls(self) -> bool:
        """Return whether the role may publish to the default exchange."""
        return DEFAULT_EXCHANGE in self.write

    def patterns(self, run: str | None) -> dict[str, str]:
        """Return RabbitMQ's regular expressions by kind, for `run`, or for every run."""
        return {kind: _pattern(getattr(self, kind), run) for kind in ("configure", "write", "read")}


def user_name(role: str, run: str | None = None) -> str:
    """Return the name of a role's user, on RabbitMQ and on Redis. Raises UnknownName."""
    if role not in TABLE:
        raise UnknownName("role", role, TABLE)
    return f"{_RUN.prefix.removesuffix(f'.{_RUN.run}') if run is None else Topology(run).prefix}.{role}"


def role_of(user: str | None) -> tuple[str, str | None] | None:
    """Return the role of a user, and its run, if it is of one alone; None for a user of another name."""
    match = _USER.fullmatch(user or "")
    return (match["role"], match["run"]) if match and match["role"] in TABLE else None


def may_declare(user: str | None) -> Callable[[str], bool]:
    """Return a function that tells whether a user may declare an exchange or a queue, by name."""
    found = role_of(user)
    if found is None:
        return lambda name: True
    role, run = found
    pattern = re.compile(TABLE[role].patterns(run)["configure"])
    return lambda name: pattern.search(name) is not None


def _pattern(names: tuple[str, ...], run: str | None) -> str:
    if not names:
        return "^$"
    begin = re.escape(_RUN.prefix)
    begins = begin.removesuffix(_RUN.run) + r"[^.]+" if run is None else re.escape(Topology(run).prefix)
    texts = [re.escape(name).replace(re.escape(_ANY), ".*") for name in names]
    own = [text.removeprefix(begin) for text in texts if text.startswith(begin)]
    others = [text for text in texts if not text.startswith(begin)]
    return f"^({'|'.join([f'{begins}({text})' for text in ['|'.join(own)] if own] + others)})$"


def _names(*things: Any) -> tuple[str, ...]:
    """Return the names of queues and exchanges; names stay as they are."""
    return tuple(thing if isinstance(thing, str) else thing.name for thing in things)


def _role(
    *processes: str,
    exchanges: tuple[Any, ...] = (),
    queues: tuple[Any, ...] = (),
    writes: tuple[Any, ...] = (),
    reads: tuple[Any, ...] = (),
) -> Rights:
    """Return the rights of a role: those that all have, and those given.

    `processes`: how the names of its processes begin, each with queues of its own for events and for remote control.
    `exchanges`: those that it declares. `queues`: those that it declares, binds and consumes.
    """
    own = []
    for process in processes:
        queue, _, _ = _RUN.event_queue(_ANY, f"{process}{_ANY}").name.rpartition(".")
        own += [f"{queue}.{_ANY}", f"{_COMMANDS}.{process}{_ANY}"]
    mine = (*own, *_PROBES, *_names(*queues))
    return Rights(
        (*mine, *_names(*exchanges)),
        (*mine, *_names(_ANSWERS, _TOLD, *writes)),
        (*mine, *_names(_RUN.event(_ANY), _COMMANDS, *reads)),
    )


# The exchanges of remote control and of Celery's events; see tasks/app/control.py.
_COMMANDS, _ANSWERS, _TOLD = f"{_RUN.control}.pidbox", f"{_RUN.control}.reply", _RUN.celery_events
_PROBES = (_RUN.probe_queue().exchange.name, f"{_RUN.prefix}.probe.{_ANY}")  # see workers/doctor
_EXCHANGES = (_RUN.actor, _RUN.learner, _RUN.service, _RUN.dead, _RUN.event(_ANY), _COMMANDS, _ANSWERS, _TOLD)
_ROLLOUTS, _SEGMENTS = _RUN.actor_queue(_ANY), _RUN.learner_queue(_ANY)
_EVERYTHING = f"{_RUN.prefix}.{_ANY}"
_LEARNERS = (WEIGHTS, STATUS)  # events; those of a player begin so, too
_OF_ACTORS = (_RUN.learner, _RUN.service, _RUN.dead)  # segments, calls of the league, rollouts that failed

TABLE = {
    "actor": _role("actor", "gateway", writes=_OF_ACTORS, reads=(_ROLLOUTS,)),
    # The actors of sampling=served, which decide for env runners.
    "inference": _role(
        "actor",
        queues=(_RUN.service_queue(f"actor{_ANY}"),),
        writes=(*_OF_ACTORS, DEFAULT_EXCHANGE),
        reads=(_ROLLOUTS, _RUN.service),
    ),
    "env": _role("env", writes=(_RUN.service,)),
    "learner": _role(
        "learner",
        exchanges=_EXCHANGES,
        queues=(_ROLLOUTS, _SEGMENTS, _RUN.dead_queue("actor"), _RUN.dead_queue("learner")),
        writes=(_RUN.actor, _RUN.learner, _RUN.service, _RUN.dead, *(_RUN.event(f"{one}{_ANY}") for one in _LEARNERS)),
        reads=(_RUN.actor, _RUN.learner, _RUN.dead),
    ),
    "league": _role(
        "league",
        exchanges=_EXCHANGES,
        queues=(_RUN.service_queue(f"league.{_ANY}"), _RUN.dead_queue("league")),
        writes=(_RUN.service, _RUN.dead, DEFAULT_EXCHANGE),
        reads=(_RUN.service, _RUN.dead),
    ),
    "evaluator": _role("evaluator", writes=(_RUN.service, _RUN.event(EVALUATION))),
    # The dashboard, and Flower, which asks workers by remote control what they do.
    "watcher": _role(
        "flower", queues=(f"{_TOLD}.{_ANY}", f"{_ANSWERS}.{_ANY}"), writes=(_COMMANDS,), reads=(_TOLD, _ANSWERS)
    ),
    "launcher": Rights((_EVERYTHING,), (_EVERYTHING, DEFAULT_EXCHANGE), (_EVERYTHING,)),
    # An autoscaler, which reads the lengths of queues by the management API, and no message.
    "scaler": Rights((), (), (), tag="management"),
}
