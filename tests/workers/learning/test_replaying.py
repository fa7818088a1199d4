"""A learner with a replay: segments are stored, acknowledged and counted once; updates follow at the limiter's pace."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.learner_run import Run
from support.waiting import until

from agents import Update
from agents.replay import saving
from warren.errors import ConfigurationError
from warren.user_code import find
from workers.config.replay_settings import ReplayConfig
from workers.config.schema import Sampling
from workers.learning.allreduce.ranks import Stopping
from workers.learning.metrics import read_metrics
from workers.learning.outlets import CHECKPOINT_AGAIN
from workers.runtime.segment_ledger import Count

OWN = f"{Path(__file__).parents[2] / 'support' / 'from_replay.py'}:build"


class ReplayRun(Run):
    """A run of segments of 32 steps whose algorithm draws from a replay."""

    def __init__(self, folder: Path, source: str = "uniform", **replay: Any) -> None:
        super().__init__(folder)
        config = self.session.config
        config.algorithm = {"name": OWN, "source": source}
        config.replay = ReplayConfig(**{"capacity": 320, "batch": 16, "begin_at": 64, **replay})
        self.kept: list[Count] = []
        self.session.ledger.keep = self.kept.append

    def payload(self, version: int = 0) -> dict[str, Any]:
        made = super().payload(version)
        made["trajectory"]["cut_at"] = np.zeros((0, 2), np.int64)
        made["trajectory"]["cut_observation"] = np.zeros((0, 4), np.float32)
        for name in ("extras", "cut"):
            made["trajectory"][name] = {}
        del made["trajectory"]["last"]["value"]
        return made


@pytest.fixture
def seen() -> list[Any]:
    module: ModuleType = __import__("sys").modules[find("algorithm", OWN).__module__]
    module.seen.clear()
    found: list[Any] = module.seen
    return found


@pytest.fixture(autouse=True)
def _(one_thread: None) -> None:
    pass


def test_updates_begin_with_enough_steps_and_then_keep_the_ratio(tmp_path: Path, seen: list[Any]) -> None:
    run = ReplayRun(tmp_path, samples_per_insert=2.0)
    trainer = run.trainer()
    made = []
    for _ in range(5):
        assert trainer.learn([run.payload()]) == [None]
        made.append(trainer.progress.updates)
    assert made == [0, 0, 4, 8, 12], "32 new steps pay for 64 draws, 4 updates of 16"
    assert trainer.progress.steps == 160
    assert all(trajectory.num_slots == 16 for trajectory, _, _ in seen)
    assert [steps for _, _, steps in seen] == [96] * 4 + [128] * 4 + [160] * 4, "the clock counts arrived steps"
    assert read_metrics(tmp_path)[0]["steps"] == 32


def test_a_segment_is_stored_once_and_raises_the_version_without_an_update(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path)
    trainer = run.trainer()
    assert run.kept == [Count(0, 0)]
    trainer.learn([run.payload()])
    assert run.settled == [{"stored": [(1, 32)]}] and run.order == ["settle", "put 1"]
    trainer.learn([run.payload()])
    assert run.settled[1:] == [{"stored": [(2, 32)]}] and trainer.progress.version == 2


def test_a_redelivered_segment_is_not_stored_again_even_after_a_kill(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path, in_checkpoint=True)
    first, second = run.payload(), run.payload()
    trainer = run.trainer()
    trainer.learn([first, second])
    trainer._source.save()
    assert trainer.learn([first]) == [None]
    assert run.settled[1:] == [{"held": [(1, 32)]}]
    assert trainer._source.stored == Count(2, 64) and trainer.progress.steps == 64
    again = run.trainer()
    again.learn([second])
    assert run.settled[2:] == [{"held": [(2, 32)]}] and again._source.stored == Count(2, 64)


def test_a_damaged_segment_is_refused_and_the_others_are_stored(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path)
    trainer = run.trainer()
    bad = run.payload()
    del bad["trajectory"]["reward"]
    first, second = trainer.learn([bad, run.payload()])
    assert "no field 'reward'" in str(first) and second is None
    assert run.settled == [{"refused": [(1, 32)], "stored": [(2, 32)]}] and trainer.progress.steps == 32


def test_priorities_and_weights_go_between_the_algorithm_and_the_replay(tmp_path: Path, seen: list[Any]) -> None:
    run = ReplayRun(tmp_path, "prioritized", weight_exponent=1.0, priority_exponent=1.0)
    trainer = run.trainer()
    for _ in range(3):
        trainer.learn([run.payload()])
    tree = trainer._source.buffer.tree
    assert len(np.unique(tree.priorities[:96])) > 10, "the priorities are errors by now"
    weights = np.concatenate([weights for _, weights, _ in seen])
    assert weights.dtype == np.float32 and weights.max() == 1 and len(np.unique(weights)) > 10


def test_wrong_priorities_end_the_run_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ReplayRun(tmp_path, "prioritized", begin_at=32)
    trainer = run.trainer()
    monkeypatch.setattr(type(trainer.algorithm), "update", lambda self, batch: Update({}, np.full(3, np.nan)))
    with pytest.raises(ConfigurationError, match=r"the priorities of an update must be \[16\] finite numbers"):
        trainer.learn([run.payload(), run.payload()])


def test_after_the_last_step_nothing_is_stored(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path)
    run.session.config.total_steps = 64
    trainer = run.trainer()
    trainer.learn([run.payload(), run.payload()])
    assert trainer.outcome is not None and trainer.outcome["state"] == "finished"
    assert trainer.learn([run.payload()]) == [None]
    assert run.settled[-1] == {"unused": [(3, 32)]} and trainer.progress.steps == 64


def test_updates_on_a_thread_go_on_while_nothing_arrives(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path, samples_per_insert=4.0, error_buffer=1000.0)
    run.session.config.sampling = Sampling.streaming
    trainer = run.trainer()
    trainer.replaying.start(lambda update: update())
    try:
        trainer.learn([run.payload()])
        trainer.learn([run.payload()])
        until(lambda: trainer.progress.updates == 62, "updates by all that the error buffer allows: 1000 // 16")
        assert trainer.learn([run.payload()]) == [None]
        until(lambda: trainer.progress.updates == 70, "128 draws more: 8 updates")
        until(lambda: run.pool.version("main") == trainer.progress.version, "the last weights are published")
    finally:
        trainer.replaying.join()
    assert trainer._source.limiter.samples == 70 * 16


def test_segments_wait_for_draws_and_give_up_when_the_learner_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ReplayRun(tmp_path, samples_per_insert=4.0, begin_at=32)
    run.session.config.sampling = Sampling.streaming
    trainer = run.trainer()
    may, update = threading.Event(), type(trainer.algorithm).update

    def slow(self: Any, batch: Any) -> Update:
        may.wait(30)
        return update(self, batch)

    monkeypatch.setattr(type(trainer.algorithm), "update", slow)
    trainer.replaying.start(lambda update: update())
    outcomes: list[Any] = []

    def send() -> None:
        try:
            while True:
                outcomes.append(trainer.learn([run.payload()]))
        except Stopping as error:
            outcomes.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    may.set()
    until(lambda: trainer.progress.updates >= 30, "updates")
    limiter = trainer._source.limiter
    assert abs(limiter.ahead) <= limiter.error_buffer + 4.0 * 32
    trainer.replaying.join()
    sender.join(30)
    assert isinstance(outcomes[-1], Stopping) and all(outcome == [None] for outcome in outcomes[:-1])


def test_a_replay_in_the_checkpoint_is_resumed(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path, "prioritized", in_checkpoint=True)
    trainer = run.trainer()
    for _ in range(3):
        trainer.learn([run.payload()])
    trainer.outlets.checkpoint()
    trainer.learn([run.payload()])
    resumed = run.trainer()
    assert run.kept == [Count(0, 0), Count(3, 96)], "the fourth segment was stored and is not kept"
    assert len(resumed._source.buffer) == 96 and resumed.progress.steps == 96
    resumed.learn([run.payload()])
    assert resumed.progress.updates > trainer._source.limiter.begin_at / 32


def test_weights_are_kept_without_room_for_the_replay_and_each_update_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ReplayRun(tmp_path, in_checkpoint=True)
    trainer = run.trainer()
    outlets, kept = trainer.outlets, tmp_path / "checkpoints"

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(saving, "save", full)
        for _ in range(3):
            outlets.checkpoint_soon()
            trainer.learn([run.payload()])
        assert sorted(path.name for path in kept.iterdir())[0].endswith(".safetensors")
        began = time.monotonic()
        trainer.learn([run.payload()])
        assert outlets.attempts.troubles == 4 and "No space left" in outlets.attempts.trouble
        assert began < outlets._checkpoint_at < time.monotonic() + CHECKPOINT_AGAIN
    outlets.checkpoint_soon()
    trainer.learn([run.payload()])
    assert (kept / "replay.npz").exists() and outlets.attempts.troubles == 0


def test_a_replay_that_is_not_in_the_checkpoint_begins_empty(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path)
    trainer = run.trainer()
    trainer.learn([run.payload()])
    trainer.outlets.checkpoint()
    resumed = run.trainer()
    assert run.kept == [Count(), Count()] and len(resumed._source.buffer) == 0 and resumed.progress.steps == 32


def test_an_incomplete_replay_is_not_loaded(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path, in_checkpoint=True)
    trainer = run.trainer()
    for _ in range(3):
        trainer.learn([run.payload()])
    trainer.outlets.checkpoint()
    (file,) = tmp_path.rglob("replay.npz")
    with np.load(file) as whole:
        parts = {name: whole[name] for name in whole.files if name != "row.startable"}
    np.savez(file, **parts)
    resumed = run.trainer()
    assert len(resumed._source.buffer) == 0
    assert resumed.learn([run.payload()]) == [None]
    assert len(resumed._source.buffer) == 32


def test_a_replay_of_other_settings_is_not_loaded(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path, in_checkpoint=True)
    trainer = run.trainer()
    trainer.learn([run.payload()])
    trainer.outlets.checkpoint()
    run.session.config.replay.capacity = 640
    assert len(run.trainer()._source.buffer) == 0
