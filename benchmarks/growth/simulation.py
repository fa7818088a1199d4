"""A simulation of a streaming run with many actors: its queues, by discrete events (simpy).

    actor ──collect──► link ──► broker ──► learner.main (bounded) ──► link ──► learner: receive, update ──► weights
      ▲                           │ Redis: the ledger's notes                                                 │
      └───────────────────────────┴──────────────── a copy of each version to each actor ◄────────────────────┘

Each part serves one job after another; its time per job was measured as processor time of whole runs. On one machine
(`cores`) a job also needs one of its cores, which are shared in slices: this is compared with measured rates. With
`cores` None each process has a core of its own, and jobs wait only for the parts themselves.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import simpy

PARTS = ("learner's update", "learner's receive", "broker", "Redis", "weights' fanout", "link in", "link out")
SERVED_BY = {"weights' fanout": "broker"}  # a part without a server of its own -> its server
FULL = 0.9  # share of the time from which a part counts as saturated
UPDATES = 30  # updates that are simulated
SLICE = 0.003  # s for which a process has a core while others wait for one: Linux's shortest, with two cores
WARM_UP = 0.3  # share of the simulated time that does not count


@dataclass(frozen=True)
class Service:
    """Times in s of one core, sizes in bytes."""

    steps: int  # steps of a segment
    collect: float  # an actor's, for a segment
    broker: float  # a segment, in and out
    redis: float  # a segment: notes of the ledger
    receive: float  # a segment at the learner, besides the update
    update: float  # a segment's share of an update
    fan_out: float  # one version to one actor, at the broker
    segment_bytes: float
    weights_bytes: float
    link: float = 125e6  # bytes/s in each direction at the broker's host: 1 Gbit/s

    def slower(self, times: float) -> Service:
        """Return the times on cores that are `times` times as slow."""
        names = ("collect", "broker", "redis", "receive", "update", "fan_out")
        return replace(self, **{name: times * getattr(self, name) for name in names})


@dataclass(frozen=True)
class Simulated:
    """The outcome of a simulated run."""

    rate: float  # steps/s that were learned from
    busy: Mapping[str, float]  # part -> share of the time
    versions: float  # a second that reached all actors

    @property
    def limit(self) -> str:
        """The part that saturates first; "actors" if none does."""
        load = dict.fromkeys(self.busy, 0.0)
        for name, share in self.busy.items():
            load[SERVED_BY.get(name, name)] += share
        server = max(load, key=lambda name: load[name])
        if load[server] < FULL:
            return "actors"
        parts = [name for name in self.busy if SERVED_BY.get(name, name) == server]
        return max(parts, key=lambda name: self.busy[name])


class Run:
    """One simulated run of `actors`, with an update for one segment from each of them, as by default."""

    def __init__(self, service: Service, actors: int, cores: int | None = None, free: frozenset[str] = frozenset()):
        self.service, self.actors, self._free = service, actors, free
        self.env = simpy.Environment()
        servers = {name: simpy.Resource(self.env) for name in PARTS}
        self._parts = {name: servers[SERVED_BY.get(name, name)] for name in PARTS}
        self._cores_count = cores or 0
        self._cores = simpy.Resource(self.env, cores) if cores else None
        self._queue = simpy.Store(self.env, max(1, actors))  # learner.main: holds an update's segments
        self._delivered = simpy.Store(self.env, 1)
        self._received = simpy.Store(self.env, max(1, actors))
        self.busy = dict.fromkeys(PARTS, 0.0)
        self.learned = self.fanned_out = 0
        self._publishing = False

    def simulate(self, updates: int = UPDATES) -> Simulated:
        """Simulate about so many updates; return the outcome without the warm-up."""
        seconds = self._lasting(updates)
        for _ in range(self.actors):
            handed_over = simpy.Store(self.env, 1)
            self.env.process(self._collect(handed_over))
            self.env.process(self._send(handed_over))
        self.env.process(self._deliver())
        self.env.process(self._receive())
        self.env.process(self._update())
        self.env.run(WARM_UP * seconds)
        self.learned, self.fanned_out, self.busy = 0, 0, dict.fromkeys(PARTS, 0.0)
        self.env.run(seconds)
        span = (1 - WARM_UP) * seconds
        busy = {name: min(1.0, taken / span) for name, taken in self.busy.items()}
        return Simulated(self.learned * self.service.steps / span, busy, self.fanned_out / span)

    def _at(self, part: str | None, time: float, on_a_core: bool = True) -> Generator[Any, Any, None]:
        """Spend `time` s at a part, or at a process of its own, on one of the machine's cores."""
        if part in self._free:
            return
        turn = self._parts[part].request() if part else None
        if turn is not None:
            yield turn
        if self._cores is None or not on_a_core:
            yield self.env.timeout(time)
        else:
            left = time
            while left > 0:  # like the kernel, so that a long update does not keep others from the cores
                with self._cores.request() as core:
                    yield core
                    taken = min(left, SLICE)
                    yield self.env.timeout(taken)
                left -= taken
        if part is not None:
            self.busy[part] += time
            self._parts[part].release(turn)

    def _wire(self, part: str, size: float) -> Generator[Any, Any, None]:
        if self._cores is None:  # a single machine has no wire
            yield from self._at(part, size / self.service.link, on_a_core=False)

    def _lasting(self, updates: int) -> float:
        """Return the s that so many updates take if only the slowest part counts."""
        service, wired = self.service, self._cores is None
        times = {
            "learner's update": service.update, "learner's receive": service.receive, "broker": service.broker,
            "Redis": service.redis, "link in": wired * service.segment_bytes / service.link,
            "link out": wired * service.segment_bytes / service.link,
        }  # fmt: skip
        slowest = max(
            [time for name, time in times.items() if name not in self._free] + [service.collect / self.actors]
        )
        if not wired:
            slowest = max(slowest, (sum(times.values()) + service.collect) / self._cores_count)
        return updates / (1 - WARM_UP) * self.actors * slowest + 5 * service.collect

    def _collect(self, handed_over: simpy.Store) -> Generator[Any, Any, None]:
        while True:
            yield from self._at(None, self.service.collect)
            yield handed_over.put(None)

    def _send(self, handed_over: simpy.Store) -> Generator[Any, Any, None]:
        service = self.service
        while True:
            yield handed_over.get()
            yield from self._at("Redis", service.redis)
            yield from self._wire("link in", service.segment_bytes)
            yield from self._at("broker", service.broker)
            yield self._queue.put(None)

    def _deliver(self) -> Generator[Any, Any, None]:
        while True:
            yield self._queue.get()
            yield from self._wire("link out", self.service.segment_bytes)
            yield self._delivered.put(None)

    def _receive(self) -> Generator[Any, Any, None]:
        while True:
            yield self._delivered.get()
            yield from self._at("learner's receive", self.service.receive)
            yield self._received.put(None)

    def _update(self) -> Generator[Any, Any, None]:
        while True:
            for _ in range(self.actors):
                yield self._received.get()
            yield from self._at("learner's update", self.actors * self.service.update)
            self.learned += self.actors
            if not self._publishing:  # otherwise newer weights replace those that wait
                self._publishing = True
                self.env.process(self._publish())

    def _publish(self) -> Generator[Any, Any, None]:
        for _ in range(self.actors):
            yield from self._at("weights' fanout", self.service.fan_out)
            yield from self._wire("link out", self.service.weights_bytes)
        self.fanned_out += 1
        self._publishing = False


def ladder(service: Service, actors: int, updates: int = UPDATES) -> list[tuple[str, float]]:
    """Return the parts in the order in which they saturate, each with its rate, down to the actors."""
    found: list[tuple[str, float]] = []
    free: set[str] = set()
    while len(free) < len(PARTS):
        done = Run(service, actors, free=frozenset(free)).simulate(updates)
        found.append((done.limit, done.rate))
        if done.limit == "actors":
            break
        free.add(done.limit)
    return found
