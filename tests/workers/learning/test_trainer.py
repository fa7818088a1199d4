"""The trainer: data of an update counts as used whatever fails after it; a killed learner's successor resumes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import torch
from support.learner_run import Run

from agents import Trajectory, Update, build_policy
from agents.checkpoints import digest, weights_from_bytes, weights_to_bytes
from warren.errors import BrokerError, ConfigurationError, NotFinite, PoolError
from workers.learning.metrics import read_metrics


@pytest.fixture
def run(tmp_path: Path, one_thread: None) -> Run:
    return Run(tmp_path)


def test_the_ledger_is_told_of_learned_segments_before_weights_are_published(run: Run) -> None:
    trainer = run.trainer()
    trainer.learn([run.payload()])
    assert run.order == ["settle", "put 1"]
    assert run.settled == [{"learned": [(1, 32)]}]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("publish", redis.ConnectionError("Redis is away")),
        ("publish", PoolError("Redis took no 9 bytes")),
        ("checkpoint", OSError(28, "No space left on device")),
        ("period_is_over", BrokerError("the league is away")),
        ("period_is_over", ValueError("a slip")),
    ],
)
def test_a_failure_after_an_update_does_not_undo_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception
) -> None:
    trainer = run.trainer()
    trainer.outlets.checkpoint_soon()

    def fail() -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(trainer.course if what == "period_is_over" else trainer.outlets, what, fail)
        assert trainer.learn([run.payload()]) == [None], "acknowledged: it was trained on"
    assert run.settled == [{"learned": [(1, 32)]}]
    assert trainer.outlets.attempts.troubles == 1
    assert str(error) in trainer.outlets.attempts.trouble
    assert trainer.learn([run.payload()]) == [None]
    assert trainer.outlets.attempts.troubles == 0
    assert trainer.progress.updates == 2


def test_weights_that_could_not_be_published_are_published_by_the_next_check(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = run.trainer()
    run.pool.away = True
    trainer.learn([run.payload()])
    assert run.pool.version("main") is None
    run.pool.away = False
    trainer.outlets.publisher.restore()
    assert run.pool.version("main") == 1
    run.pool.away = True
    trainer.learn([run.payload()])
    run.pool.away = False
    trainer.outlets.publisher.restore()
    assert run.pool.version("main") == 2
    said = [record.getMessage() for record in caplog.records if "publishing version" in record.getMessage()]
    assert said == [
        "the pool has none of main; publishing version 1 again",
        "the pool has version 1 of main; publishing version 2 again",
    ], "the pool refused weights, and lost none"


def test_a_ledger_that_is_away_is_told_later(run: Run) -> None:
    trainer = run.trainer()
    run.refusing = redis.ConnectionError("Redis is away")
    assert trainer.learn([run.payload()]) == [None]
    run.refusing = None
    trainer.learn([run.payload()])
    assert run.settled == [{"learned": [(1, 32)]}, {"learned": [(2, 32)]}]


def test_trajectories_that_come_after_the_end_are_unused_and_not_learned(run: Run) -> None:
    trainer = run.trainer()
    trainer.finish("solved")
    trainer.learn([run.payload()])
    assert run.settled == [{"unused": [(1, 32)]}]
    assert trainer.progress.updates == 0


def no_such_action(trajectory: dict[str, Any]) -> None:
    trajectory["action"][3, 0] = 9


def another_observation(trajectory: dict[str, Any]) -> None:
    trajectory["observation"] = np.zeros((16, 2, 7), np.float32)


def a_mask_where_none_is(trajectory: dict[str, Any]) -> None:
    trajectory["action_mask"] = np.ones((16, 2, 2), bool)


def a_wrong_type(trajectory: dict[str, Any]) -> None:
    trajectory["reward"] = trajectory["reward"].astype(np.int64)


@pytest.mark.parametrize("spoil", [no_such_action, another_observation, a_mask_where_none_is, a_wrong_type])
@pytest.mark.parametrize("place", [0, 2])
def test_a_segment_that_does_not_match_the_spec_is_refused_alone(
    run: Run, caplog: pytest.LogCaptureFixture, spoil: Any, place: int
) -> None:
    trainer = run.trainer()
    calls = [run.payload() for _ in range(4)]
    spoil(calls[place]["trajectory"])
    outcomes = trainer.learn(calls)
    assert [isinstance(outcome, Exception) for outcome in outcomes] == [index == place for index in range(4)]
    good = [(number, 32) for number in (1, 2, 3, 4) if number != place + 1]
    assert run.settled == [{"learned": good, "refused": [(place + 1, 32)]}]
    assert (trainer.progress.updates, trainer.progress.steps, trainer.progress.refused) == (1, 3 * 32, 1)
    assert f"segment {place + 1} of a was refused (1 so far)" in caplog.text
    assert run.pool.version("main") == 1, "the others' update is published"


def test_a_round_with_one_bad_segment_is_learned_from_without_it(run: Run) -> None:
    trainer = run.trainer()
    payloads = [run.payload() for _ in range(3)]
    a_wrong_type(payloads[0]["trajectory"])
    assert trainer.learn([payloads]) == [None], "most of it was used"
    assert trainer.progress.steps == 2 * 32


@pytest.mark.parametrize("place", [0, 2])
def test_a_segment_that_raises_in_the_update_is_refused_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    trainer = run.trainer()
    calls = [run.payload() for _ in range(4)]
    calls[place]["trajectory"]["reward"][:] = 99.0  # a valid segment that this algorithm refuses
    update = type(trainer.algorithm).update

    def picky(self: Any, trajectories: Any) -> Any:
        if any((trajectory.reward == 99.0).any() for trajectory in trajectories):
            raise ArithmeticError("a reward of 99")
        return update(self, trajectories)

    monkeypatch.setattr(type(trainer.algorithm), "update", picky)
    outcomes = trainer.learn(calls)
    assert [isinstance(outcome, ArithmeticError) for outcome in outcomes] == [index == place for index in range(4)]
    good = [(number, 32) for number in (1, 2, 3, 4) if number != place + 1]
    assert run.settled == [{"learned": good, "refused": [(place + 1, 32)]}]
    assert (trainer.progress.updates, trainer.progress.steps, trainer.progress.refused) == (1, 3 * 32, 1)


def test_an_update_that_fails_is_not_blamed_on_a_segment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = run.trainer()

    def fail(self: Any, segments: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(type(trainer.algorithm), "update", fail)
    with pytest.raises(MemoryError):
        trainer.learn([run.payload(), run.payload()])
    assert trainer.progress.refused == 0
    assert run.settled == [{"failed": [(1, 32), (2, 32)]}]


def test_the_fresh_half_of_a_half_stale_segment_counts_as_learned(run: Run) -> None:
    trainer = run.trainer()
    trainer.progress.version = 100
    half, old = run.payload(100), run.payload(0)
    half["trajectory"]["version"][1] = 0
    assert trainer.learn([half, old]) == [None, None]
    assert run.settled == [{"learned": [(1, 16)], "stale": [(2, 32)]}]
    assert (trainer.progress.steps, trainer.progress.stale_steps) == (16, 48)


def test_another_learners_weights_of_the_same_version_are_not_taken_for_own(run: Run) -> None:
    trainer = run.trainer()
    trainer.learn([run.payload()])
    trainer.outlets.publish()  # once more, as after a restart: nothing is wrong
    assert trainer.progress.version == 1
    stranger = build_policy({}, trainer.state.policy.observation_space, trainer.state.policy.action_space, 99)
    run.pool.put("main", 2, 0, weights_to_bytes(stranger, {"player": "main", "version": 2, "step": 0}))
    trainer.learn([run.payload()])
    assert trainer.progress.version == 3
    assert run.pool.version("main") == 3


def test_a_killed_learner_resumes_with_everything_in_its_checkpoint(run: Run) -> None:
    first = run.trainer()
    first.learn([run.payload()])
    first.outlets.checkpoint()
    kept = {name: tensor.clone() for name, tensor in first.state.policy.state_dict().items()}
    for _ in range(3):
        first.learn([run.payload()])
    assert [point["version"] for point in read_metrics(run.folder)] == [1, 2, 3, 4]
    steps = first.progress.steps
    second = run.trainer()  # the first was killed
    assert second.progress.steps == steps // 4
    assert second.algorithm.steps == steps // 4
    assert all(torch.equal(tensor, kept[name]) for name, tensor in second.state.policy.state_dict().items())
    assert [point["version"] for point in read_metrics(run.folder)] == [1]
    assert second.progress.version == 5, "above those that actors may hold"
    second.outlets.publish()
    second.learn([run.payload(5)])
    points = read_metrics(run.folder)
    assert [point["version"] for point in points] == [1, 6]
    assert [point["steps"] for point in points] == sorted(point["steps"] for point in points)


def test_without_a_recent_checkpoint_pool_weights_get_a_new_optimizer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run.trainer()
    first.learn([run.payload()])
    weights = {name: tensor.clone() for name, tensor in first.state.policy.state_dict().items()}
    second = run.trainer()
    assert second.progress.version == 1
    assert second.algorithm.steps == second.progress.steps == 32, "schedules continue at the player's steps"
    assert not second.algorithm.descent.optimizer.state
    assert all(torch.equal(tensor, weights[name]) for name, tensor in second.state.policy.state_dict().items())


def test_the_behaviour_of_actors_travels_with_the_weights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = run.trainer()
    monkeypatch.setattr(type(trainer.algorithm), "behaviour", lambda self: {"epsilon": 0.1})
    trainer.outlets.publish()
    _, stamp = weights_from_bytes(run.pool.models[0].data)
    assert stamp["behaviour"] == {"epsilon": 0.1}


def test_weights_of_an_update_with_nan_are_neither_published_nor_kept(run: Run) -> None:
    trainer = run.trainer()
    trainer.learn([run.payload()])
    trainer.outlets.checkpoint()
    overflowing = run.payload(1)
    overflowing["trajectory"]["reward"][:] = 1e30
    with pytest.raises(NotFinite, match=r"ppo, minibatch 1 of the update after 32 environment steps: .*value_loss"):
        trainer.learn([run.payload(1), overflowing])
    trainer.close()
    assert run.pool.version("main") == 1
    assert [path.stem for path in (run.folder / "checkpoints").iterdir()] == ["00000001"]
    assert trainer.state.last_good() == f"the last good checkpoint is {run.folder}/checkpoints/00000001.safetensors"
    assert run.trainer().progress.updates == 1, "training resumes from the last good checkpoint"


def test_a_nan_loss_of_a_users_own_optimizer_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = run.trainer()
    monkeypatch.setattr(type(trainer.algorithm), "update", lambda *_: Update({"loss": math.nan, "kl": math.nan}))
    with pytest.raises(NotFinite, match="ppo: loss of the update after 0 environment steps is nan"):
        trainer.learn([run.payload()])
    assert run.pool.version("main") is None


OWN = """
from agents import Needs
from agents.algorithms import ppo

class Reading(ppo.PPO):
    needs = Needs(fields=("extras.log_prob", "cut.value"))  # and PPO's update reads values

def build(settings, policy, seed):
    return Reading(policy, ppo.PPOConfig(), seed)
"""


def test_an_algorithm_reading_an_undeclared_field_is_blamed_not_a_segment(run: Run) -> None:
    (run.folder / "own.py").write_text(OWN)
    run.session.config = replace(run.session.config, algorithm={"name": f"{run.folder}/own.py:build"})
    trainer, payloads = run.trainer(), [run.payload(), run.payload()]
    for payload in payloads:
        del payload["trajectory"]["extras"]["value"], payload["trajectory"]["last"]["value"]
    with pytest.raises(
        ConfigurationError, match=r"update\(\) reads 'value' of its trajectories, .* add 'extras.value'"
    ):
        trainer.learn(payloads)
    assert trainer.progress.refused == 0 and run.pool.version("main") is None


def test_the_type_of_an_updates_wrong_result_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = run.trainer()
    monkeypatch.setattr(type(trainer.algorithm), "update", lambda *_: {"loss": 0.0})
    with pytest.raises(ConfigurationError, match=r"update\(\) gave a dict; it is to give an agents.Update"):
        trainer.learn([run.payload()])


def test_metrics_become_plain_numbers_and_others_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = run.trainer()
    given = {"a": torch.tensor(2.0, requires_grad=True), "b": np.float32(3), "c": 4}
    monkeypatch.setattr(type(trainer.algorithm), "update", lambda *_: Update(dict(given)))
    trainer.learn([run.payload()])
    assert json.loads(json.dumps(trainer.progress.losses)).items() >= {"a": 2.0, "b": 3.0, "c": 4}.items()
    given["loss"] = "low"
    with pytest.raises(ConfigurationError, match=r"update\(\) gave the metric loss='low'; it must be a number"):
        trainer.learn([run.payload(1)])


def test_a_resumed_learner_makes_the_same_update_as_an_uninterrupted_one(run: Run, tmp_path: Path) -> None:
    first = run.trainer()
    for version in range(3):
        first.learn([run.payload(version)])
    first.outlets.checkpoint()
    run.pool.models = {3: run.pool.models[3]}
    second = run.trainer()
    assert second.progress.version == 3
    for version in (3, 4):
        payload = run.payload(version)
        run.pool.models.clear()
        first.learn([payload])
        run.pool.models.clear()
        second.learn([payload])
        assert digest(first.state.policy) == digest(second.state.policy)
    assert first.progress.losses == second.progress.losses
    assert digest(first.state.policy) != digest(run.sampler.policy)


def test_a_deterministic_update_does_not_depend_on_how_payloads_are_divided(tmp_path: Path) -> None:
    left = []
    for divided in (False, True):
        run = Run(tmp_path)
        run.session.config.deterministic = True
        trainer = run.trainer()
        payload = run.payload()
        if divided:
            whole = Trajectory.from_dict(payload["trajectory"])
            halves = [{**payload, "trajectory": whole.slots(np.array([slot])).to_dict()} for slot in (0, 1)]
            trainer.learn([halves])
        else:
            trainer.learn([[payload]])
        left.append(digest(trainer.state.policy))
    assert left[0] == left[1]


def test_a_learner_that_finds_its_run_over_leaves_the_outcome_as_it_was(run: Run) -> None:
    first = run.trainer()
    first.learn([run.payload()])
    first.finish("solved")
    first.close()
    written = json.loads((run.folder / "outcome.json").read_text())
    assert written["timing"]["update"]["times"] == 1
    second = run.trainer()
    second.finish("solved")
    second.close()
    assert json.loads((run.folder / "outcome.json").read_text()) == written
