"""Tests of the learner's handling of rounds that come back and of updates that fail."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from support.stand_ins import Chords
from support.waiting import PATIENCE, until

from tasks.topology import Topology
from warren.errors import ConfigurationError, NotFinite, PoolError
from workers.config.schema import Config, EnvConfig, Sampling, from_yaml
from workers.learning import learner_role as learner_module
from workers.learning.learner import leave_configuration
from workers.learning.learner_role import LearnerRole


class Trainer:
    """A stand-in for training: an update is a call, and may fail."""

    ranks, leads, replaying = None, True, None

    def __init__(self) -> None:
        self.progress = SimpleNamespace(
            version=0, steps=0, mean_return=None, steps_per_second=0.0, returns=[], episodes=0, staleness=0.0
        )
        self.outcome: dict[str, Any] | None = None
        self.outlets = SimpleNamespace(attempts=SimpleNamespace(troubles=0, trouble=""), settle=self.settle)
        self.state = SimpleNamespace(last_good=lambda: "the last good checkpoint is 7")
        self.errors: list[Exception] = []
        self.updates = 0
        self.spare: list[tuple[str, int]] = []

    def learn(self, calls: Any) -> list[Any]:
        if self.errors:
            raise self.errors.pop(0)
        self.updates += 1
        self.progress.version += 1
        return [None] * len(calls)

    def settle(self, became: Any) -> None:
        self.spare += [(kind, payload["number"]) for kind, payload in became if "number" in payload]


@pytest.fixture
def role(chords: Chords, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LearnerRole]]:
    stopped = threading.Event()
    monkeypatch.setattr(learner_module, "stop_worker", stopped.set)
    monkeypatch.setattr(learner_module, "actors_now", lambda session: session.actors)
    made: list[LearnerRole] = []

    def build(sampling: Sampling = Sampling.gathered) -> LearnerRole:
        config = Config(sampling=sampling, actors=3, env=EnvConfig(goal=None))
        session: Any = SimpleNamespace(app=Celery("learner"), actors=config.actors, topology=Topology("t"), redis=None)
        made.append(LearnerRole(config, session, Trainer()))  # type: ignore[arg-type]
        return made[-1]

    build.stopped = stopped  # type: ignore[attr-defined]
    yield build
    for learner in made:
        learner.on_stopping()


def three_rollouts(round_id: str) -> list[list[dict[str, str]]]:
    return [[{"round": round_id}] * 3]


def test_an_update_starts_the_next_round_with_the_new_version(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner = role()
    assert learner.rounds is not None
    learner.rounds.start(0)
    assert learner.learn(three_rollouts(chords.last)) == [None]
    assert [version for _, version, _ in chords.dispatched] == [0, 1]


def test_a_late_round_is_dropped_without_an_update(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    late = chords.last
    learner.rounds.dispatch(0)
    assert learner.learn(three_rollouts(late)) == [None]
    assert learner.trainer.updates == 0
    assert len(chords.dispatched) == 2


def test_a_rollouts_error_ends_the_learner_in_one_line_with_its_exit_status(
    chords: Chords, role: Callable[..., LearnerRole], caplog: pytest.LogCaptureFixture
) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    why = "environment 'game.py:Game': step() failed at game.py:7: ValueError: no such move"
    for _ in range(2):
        (payloads,) = three_rollouts(chords.last)
        payloads[1] = {"round": chords.last, "failed": why, "by_user": True}  # type: ignore[dict-item]
        assert learner.learn([payloads]) == [None]
    assert learner.trainer.updates == 0
    assert learner.failure == why
    assert any(why in record.getMessage() and "\n" not in record.getMessage() for record in caplog.records)
    with pytest.raises(ConfigurationError, match="no such move"):
        learner.status(0)


def test_a_learner_behind_its_actors_publishes_a_higher_version(
    chords: Chords, role: Callable[..., LearnerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner: Any = role()

    def skip_past(version: int) -> None:
        learner.trainer.progress.version = version + 1

    monkeypatch.setattr(learner.trainer, "skip_past", skip_past, raising=False)
    learner.rounds.start(3)
    assert learner.learn([[{"round": chords.last, "superseded": 9}] * 3]) == [None]
    assert [version for _, version, _ in chords.dispatched] == [3, 10]
    assert learner.trainer.updates == 0


def test_a_broker_that_is_away_when_the_next_round_is_dispatched_undoes_no_update(
    chords: Chords, role: Callable[..., LearnerRole]
) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    chords.away = True
    assert learner.learn(three_rollouts(chords.last)) == [None], "the data was trained on, so it is acknowledged"
    chords.away = False
    until(lambda: len(chords.dispatched) == 2)
    assert chords.dispatched[1][1] == 1


def test_an_update_that_fails_is_followed_by_another_round(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    learner.trainer.errors = [ConnectionError("Redis is away")]
    with pytest.raises(ConnectionError):
        learner.learn(three_rollouts(chords.last))
    assert len(chords.dispatched) == 2, "nothing would ever start the next round"
    assert learner.learn(three_rollouts(chords.last)) == [None]
    assert learner.failure is None


@pytest.mark.parametrize("sampling", list(Sampling))
def test_a_learner_whose_updates_keep_failing_gives_up_and_says_why(
    chords: Chords, role: Callable[..., LearnerRole], sampling: Sampling
) -> None:
    learner: Any = role(sampling)
    if learner.rounds is not None:
        learner.rounds.start(0)
    learner.trainer.errors = [OSError(28, "No space left on device")] * 3
    for left in (2, 1, 0):
        assert learner.failure is None
        with pytest.raises(OSError, match="No space"):
            learner.learn(three_rollouts(chords.last) if learner.rounds is not None else [{"round": None}])
        assert len(learner.trainer.errors) == left
    assert learner.failure == ("3 updates in a row failed, the last with OSError: [Errno 28] No space left on device")
    assert role.stopped.is_set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("sampling", list(Sampling))
def test_a_learner_with_nan_gives_up_at_once_and_names_the_last_good_checkpoint(
    chords: Chords, role: Callable[..., LearnerRole], sampling: Sampling
) -> None:
    learner: Any = role(sampling)
    if learner.rounds is not None:
        learner.rounds.start(0)
    learner.trainer.errors = [NotFinite("ppo, minibatch 3: value_loss is nan")]
    with pytest.raises(NotFinite):
        learner.learn(three_rollouts(chords.last) if learner.rounds is not None else [{"round": None}])
    assert role.stopped.is_set()  # type: ignore[attr-defined]
    with pytest.raises(NotFinite, match="value_loss is nan; the last good checkpoint is 7"):
        learner.status(0)
    if learner.rounds is not None:
        assert len(chords.dispatched) == 1, "no round follows"


def test_the_order_of_answers_does_not_change_a_deterministic_round(
    chords: Chords, role: Callable[..., LearnerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner: Any = role()
    learner.config.deterministic = True
    learner.rounds.start(0)
    seen: list[Any] = []
    monkeypatch.setattr(learner.trainer, "learn", lambda calls: seen.extend(calls) or [None])
    learner.learn([[{"round": chords.last, "actor": actor} for actor in (2, 0, 1)]])
    assert [payload["actor"] for payload in seen[0]] == [0, 1, 2]


def test_the_last_update_starts_no_round(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    learner.trainer.outcome = {"state": "solved"}
    learner.learn(three_rollouts(chords.last))
    assert len(chords.dispatched) == 1


def test_the_thread_that_keeps_the_weights_survives_any_error(
    role: Callable[..., LearnerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_module, "KEEP_EVERY", 0.01)
    learner, polls = role(), threading.Semaphore(0)

    def fail() -> None:
        polls.release()
        raise PoolError("no memory left")

    monkeypatch.setattr(learner, "keep", fail)
    thread = threading.Thread(target=learner._keep, daemon=True)
    thread.start()
    assert polls.acquire(timeout=PATIENCE)
    assert polls.acquire(timeout=PATIENCE), "the thread died of the first error"
    learner.ended.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_configuration_whose_write_failed_is_written_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "run" / "config.yaml"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            leave_configuration(file.parent, Config(seed=3))
    assert not file.exists()
    leave_configuration(file.parent, Config(seed=3))
    leave_configuration(file.parent, Config(seed=4))
    assert from_yaml(file).seed == 3
