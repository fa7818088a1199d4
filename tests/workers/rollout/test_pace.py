"""Tests of the pace of streaming actors, on a simulated clock: data is young, and the learner never lacks it."""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections.abc import Callable, Sequence

from workers.rollout.sending.pace import LATELY, Pace

UPDATE, SEND, LATENCY, LOOK = 0.34, 0.01, 0.03, 0.03  # s; LATENCY: from an update's end to the actors' new weights
UNTIL = 60.0  # s


class Job:
    """A learner that takes `batch` segments per update from a queue of as many, and its actors.

    `collecting`: s that a segment takes each actor; `paced`: by Pace, not by room alone; `gone_at`: s, when the last
    actor dies; `lost`: versions that no actor gets.
    """

    def __init__(
        self,
        collecting: Sequence[float],
        batch: int = 2,
        paced: bool = True,
        gone_at: float = UNTIL,
        lost: Callable[[int], bool] = lambda version: False,
    ) -> None:
        self.batch, self.paced, self.gone_at, self.lost = batch, paced, gone_at, lost
        self.now, self.version, self.updating, self.busy = 0.0, 0, False, 0.0
        self.queue: list[int] = []  # versions of the weights that made each segment
        self.held: list[int] = []
        self.staleness: list[float] = []  # per update
        self._order, self._events = itertools.count(), list[tuple[float, int, Callable[[], None]]]()
        share = batch / len(collecting)
        self.actors = [Actor(self, seconds, Pace(lambda: share, lambda: self.now)) for seconds in collecting]
        for actor in self.actors:
            self.after(0, actor.look)
        while self._events and self.now < UNTIL:
            self.now, _, happen = heapq.heappop(self._events)
            happen()

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), happen))

    def feed(self) -> None:
        if self.updating:
            return
        self.held += self.queue[: self.batch - len(self.held)]
        del self.queue[: len(self.held)]
        if len(self.held) == self.batch:
            self.updating = True
            self.busy += UPDATE
            self.staleness.append(self.version - statistics.mean(self.held))
            self.after(UPDATE, self.updated)

    def updated(self) -> None:
        self.updating, self.held, self.version = False, [], self.version + 1
        if not self.lost(self.version):
            version = self.version
            for actor in self.actors:
                self.after(LATENCY, lambda actor=actor: setattr(actor, "version", version))  # type: ignore[misc]
        self.feed()

    @property
    def share_of_time(self) -> float:
        """Return the share of the time in which the learner updates."""
        return self.busy / self.now


class Actor:
    def __init__(self, job: Job, collecting: float, pace: Pace) -> None:
        self.job, self.collecting, self.pace, self.version = job, collecting, pace, 0

    def look(self) -> None:
        if self.job.now > self.job.gone_at and self is self.job.actors[-1]:
            return
        room = len(self.job.queue) < self.job.batch
        if self.pace.may_collect(self.version, room) if self.job.paced else room:
            version = self.version
            self.job.after(self.collecting, lambda: self.collected(version))
        else:
            self.job.after(LOOK, self.look)

    def collected(self, version: int) -> None:
        self.pace.collected(self.version)
        self.job.after(SEND, lambda: self.send(version))

    def send(self, version: int) -> None:
        if len(self.job.queue) >= self.job.batch:
            self.pace.full(self.version)
            self.job.after(LOOK, lambda: self.send(version))
            return
        self.job.queue.append(version)
        self.job.feed()
        self.look()


def test_a_slow_learner_gets_data_one_version_old_and_never_waits() -> None:
    for actors in (2, 8):
        job = Job([0.1] * actors, batch=actors)
        assert statistics.median(job.staleness) == 1
        assert job.share_of_time > 0.95
        by_room_alone = Job([0.1] * actors, batch=actors, paced=False)
        assert statistics.median(by_room_alone.staleness) > 2, "actors that see the same room fill the queue twice"


def test_actors_slower_than_the_learner_never_wait() -> None:
    for collecting in ([0.4, 0.4], [1.0, 1.2]):
        assert len(Job(collecting).staleness) >= len(Job(collecting, paced=False).staleness)


def test_actors_keep_to_shares_of_several_segments_or_of_part_of_one() -> None:
    for actors, batch, seconds in ((2, 6, 0.04), (6, 2, 0.1)):
        job, by_room_alone = (Job([seconds] * actors, batch, paced=paced) for paced in (True, False))
        assert statistics.mean(job.staleness) <= statistics.mean(by_room_alone.staleness)
        assert job.share_of_time > 0.95


def test_an_actor_stands_in_for_another_that_is_slow_or_gone() -> None:
    assert Job([0.1, 0.6]).share_of_time > 0.85
    assert Job([0.1, 0.1], gone_at=20.0).share_of_time > 0.9


def test_lost_weights_stop_no_actor() -> None:
    assert Job([0.1, 0.1], lost=lambda version: version > 20).share_of_time > 0.95
    assert Job([0.1, 0.1], lost=lambda version: version % 16 > 0).share_of_time > 0.95, "weights are published rarely"


def test_an_actor_that_stood_in_for_others_returns_to_its_share() -> None:
    now = [0.0]
    pace = Pace(lambda: 1.0, lambda: now[0])
    assert pace.in_turn(0)
    for _ in range(100):
        pace.collected(0)
    assert not pace.in_turn(0)
    now[0] = 1.0
    assert [pace.in_turn(version) for version in (1, 2, 3)] == [False, False, True]
    pace.full(4)
    for _ in range(4):
        pace.collected(40)
    pace.full(40)
    assert not pace.in_turn(40), "a leap of versions is worth two updates at most"


def test_an_actor_collects_out_of_turn_only_after_room_for_a_while() -> None:
    now = [0.0]
    pace = Pace(lambda: 1.0, lambda: now[0])
    for _ in range(2):
        pace.collected(0)
    now[0] = 1.0
    pace.collected(1)  # versions are a second apart
    assert not pace.may_collect(1, room=True)
    now[0] = 1.9
    assert not pace.may_collect(1, room=False)
    now[0] = 2.0
    assert not pace.may_collect(1, room=True), "new room may only mean that an update ended"
    now[0] = 2.4
    assert pace.may_collect(1, room=True)


def test_a_queue_that_has_not_been_full_lately_is_filled_without_turns() -> None:
    pace = Pace(lambda: 1.0, lambda: 0.0)
    for _ in range(100):
        pace.collected(0)
    assert not pace.in_turn(LATELY - 1)
    assert pace.in_turn(LATELY + 1)
    for version in range(LATELY + 1, 20):
        pace.collected(version)
    assert pace.in_turn(20)
    pace.full(20)
    for _ in range(2):
        pace.collected(20)
    assert not pace.in_turn(20)
