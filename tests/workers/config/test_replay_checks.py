"""Settings of a replay are refused where no algorithm draws from one or they cannot work, all at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agents import Needs
from workers.config.replay_checks import of_own_buffer, problems
from workers.config.replay_settings import ReplayConfig
from workers.config.schema import Config, EnvConfig, Sampling

COMBINED = f"{Path(__file__).resolve().parents[3] / 'examples/replay/combined.py'}:build"
UNIFORM = Needs(source="uniform", length=1)
DRAWING = Needs(source="prioritized", length=4)


def config(**changes: Any) -> Config:
    replay = ReplayConfig(**{name.partition(".")[2]: changes.pop(name) for name in list(changes) if "." in name})
    return Config(replay=replay, **{"env": EnvConfig(num_envs=4), "unroll_length": 16, **changes})


def test_the_defaults_suit_an_algorithm_that_draws_and_one_that_does_not() -> None:
    for sampling in Sampling:
        assert list(problems(config(sampling=sampling), "dqn", DRAWING)) == []
        assert list(problems(config(sampling=sampling), "ppo", Needs())) == []


def test_each_setting_of_a_replay_that_nothing_draws_from_is_refused() -> None:
    found = list(problems(config(**{"replay.batch": 32, "replay.in_checkpoint": True}), "ppo", Needs()))
    assert [line.partition(" is not read by algorithm 'ppo'")[0] for line in found] == [
        "replay.batch: 32", "replay.in_checkpoint: True"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replay.batch": 0}, "replay.batch: 0 is not a number of at least 1"),
        ({"replay.samples_per_insert": 0.0}, "replay.samples_per_insert: 0.0 is not a number above 0"),
        ({"replay.memory": float("nan")}, "replay.memory: nan is not a number above 0"),
        ({"replay.weight_exponent": -1.0}, "replay.weight_exponent: -1.0 is not a number of at least 0"),
        ({"replay.begin_at": 2_000_000, "total_steps": 9_000_000}, "2000000 steps are more than replay.capacity"),
        ({"total_steps": 5000}, "replay.begin_at: 10000 is not before the end of the run, total_steps 5000"),
        ({"replay.capacity": 255, "replay.begin_at": 9}, "replay.capacity: 255 is too small; .* take 256 steps"),
        ({"sampling": Sampling.served, "unroll_length": 2}, "unroll_length: 2 is less than the 4 .* raise it to 4"),
        (
            {"sampling": Sampling.streaming, "replay.error_buffer": 9.0},
            "error_buffer: with 9 .* raise it to 384",
        ),
        (
            {"replay.buffer_settings": {"newest": 2}},
            "buffer_settings: {'newest': 2} is not read without a buffer of your own; add replay.buffer=",
        ),
        ({"learners": 2}, "learners: 2 cannot share the replay .* use learners=1"),
        ({"league": {"players": {}}}, "draws from a replay, which a league's players do not have"),
    ],
)
def test_replay_settings_that_cannot_work_are_named_with_the_remedy(changes: dict[str, Any], message: str) -> None:
    (problem,) = problems(config(**changes), "dqn", DRAWING)
    assert re.search(message, problem), problem


def test_all_wrong_numbers_are_reported_at_once() -> None:
    assert len(list(problems(config(**{"replay.batch": 0, "replay.memory": -1.0}), "dqn", DRAWING))) == 2


def test_a_buffer_of_the_users_own_is_made_and_checked_where_it_is_drawn_from() -> None:
    own = {"replay.buffer": COMBINED, "replay.buffer_settings": {"newest": 0}}
    (problem,) = of_own_buffer(config(**own), UNIFORM, "train")
    assert problem == "replay.buffer_settings: newest=0, among=512 are not both at least 1; raise them"
    (problem,) = of_own_buffer(config(**own), DRAWING, "train")
    assert problem.endswith("give algorithm.prioritized=false")
    both = {**own, "replay.batch": 0}
    found = [*problems(config(**both), "sac", UNIFORM), *of_own_buffer(config(**both), UNIFORM, "learner")]
    assert len(found) == 2, "a wrong number does not hide them"
    assert not list(of_own_buffer(config(**own), Needs(), "train"))
    assert not list(of_own_buffer(config(**own, league={}), DRAWING, "train"))
    assert not list(of_own_buffer(config(**own), DRAWING, "actor"))
    (problem,) = problems(config(**{"replay.buffer": COMBINED}), "ppo", Needs())
    assert problem.startswith(f"replay.buffer: {COMBINED} is not read by algorithm 'ppo'")
