"""Tests of the message of a run that stands still: its time so far, and its cause."""

from __future__ import annotations

import pytest

from workers.launch.kinds import learning_times
from workers.launch.kinds.learning_times import LearningClock, UpdateTimes
from workers.launch.watching.figures import statuses
from workers.launch.watching.stalls import Stalls, explain


def test_the_time_of_an_update_is_measured_between_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(learning_times.time, "monotonic", clock)
    times, figures = UpdateTimes(), statuses()
    for version, seconds in ((0, 30.0), (1, 4.0), (1, 1.0), (3, 8.0), (4, 2.0)):
        clock.now += seconds
        figures["version"] = version
        times.poll(figures)
    assert times.longest == pytest.approx(0.9 * (8.0 + 1.0) / 2)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_player_stands_still_ten_seconds_after_its_last_step() -> None:
    clock = Clock()
    stalls = Stalls(clock)
    assert stalls.poll({"main": 5, "late": 0}) == {}
    clock.now += 9.0
    assert stalls.poll({"main": 6, "late": 0}) == {}
    clock.now += 5.0
    assert stalls.poll({"main": 6, "late": 0}) == {"late": 14.0}
    clock.now += 5.0
    assert stalls.poll({"main": 6, "late": 0}) == {"main": 10.0, "late": 19.0}
    assert stalls.poll({"main": 7}) == {}


def test_a_stall_is_explained_by_known_troubles() -> None:
    lines = explain({"": 12.0}, {}, ["Redis is away for 9 s", "actor-1 is stopped (SIGSTOP)"], {}, begun=True)
    assert lines == ["no step for 12 s, waiting for Redis is away for 9 s; actor-1 is stopped (SIGSTOP)"]


def test_a_stall_without_known_troubles_is_explained_by_queues() -> None:
    assert "the learner, which has 3 messages waiting" in explain({"": 12.0}, {}, [], {"learner.main": 3}, True)[0]
    assert "2 rollouts wait for one that is free" in explain({"": 12.0}, {}, [], {"actor.main": 2}, True)[0]
    assert explain({"": 30.0}, {}, [], {}, begun=False)[0].startswith("no first step for 30 s, waiting for actors and")


def test_a_player_that_is_paused_or_frozen_is_not_waited_for() -> None:
    assert explain({"main": 12.0, "late": 12.0}, {"late": "paused"}, [], {}, True) == [
        "player main: no step for 12 s, waiting for rollouts in progress"
    ]


def test_the_time_of_a_run_counts_from_the_first_step_that_is_learned() -> None:
    clock = Clock()
    watch = LearningClock(clock)
    for _ in range(3):
        clock.now += 20.0
        watch.poll({})
        assert watch.seconds == 0.0
    watch.poll({"main": 660_000})  # the steps with which a resumed learner begins
    clock.now += 5.0
    watch.poll({"main": 660_000, "late": 0})
    assert watch.seconds == 0.0
    watch.poll({"main": 660_000, "late": 128})
    clock.now += 7.0
    watch.poll({"main": 661_000, "late": 256})
    assert watch.seconds == 7.0
