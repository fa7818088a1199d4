"""Tests of schedules that follow the run's progress in steps or seconds, whichever is further."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.config.schema import Config, EnvConfig
from workers.config.validation import verify
from workers.learning.plain import plain_trainer

HALF = {"name": "linear", "start": 0.01, "end": 0.0, "over": "progress"}


def test_progress_is_of_steps_or_seconds_whichever_is_further() -> None:
    assert Config(total_steps=1000).progress(250, 10.0) == 0.25
    timed = Config(total_steps=1000, seconds=100.0)
    assert [timed.progress(steps, seconds) for steps, seconds in ((250, 10), (250, 60), (2000, 0))] == [0.25, 0.6, 1.0]
    assert Config(total_steps=1000, seconds=100.0, deterministic=True).progress(250, 60.0) == 0.25


def test_a_learners_schedules_follow_the_runs_progress(tmp_path: Path) -> None:
    config = Config(
        folder=str(tmp_path), trial="t", run="r", env=EnvConfig(id="CartPole-v1"), total_steps=1000, seconds=100.0,
        algorithm={"name": "ppo", "learning_rate": HALF},
    )  # fmt: skip
    session: Any = SimpleNamespace(config=config, pool=SimpleNamespace(newest=lambda player, newer_than: None))
    state = plain_trainer(session, tmp_path, on_finished=lambda: None).state
    state.progress.steps = 250
    rates = []
    for seconds in (None, 60.0):
        state.set_clock(seconds)
        rates.append(state.algorithm.set_learning_rate())  # type: ignore[attr-defined]
    assert rates == pytest.approx([0.0075, 0.004])


def test_a_players_share_of_a_leagues_steps_is_by_its_updates() -> None:
    players = {"main": {"kind": "main_agent", "updates": 8}, "a": {"kind": "main_exploiter"}, "b": {"kind": "pfsp"}}
    league = LeagueConfig.from_dict({"env": "openspiel:kuhn_poker", "players": players})
    assert [league.share_of(name) for name in ("main", "a", "later")] == [0.8, 0.1, 0.25]
    earning = replace(league, earned_share=0.5)
    config = Config(trial="t", run="r", total_steps=1000, seconds=100.0)
    assert config.progress(900 / earning.share_of("main"), 40.0) == 0.4, "progress goes by the time alone"


def test_a_schedule_over_progress_refuses_a_number_of_steps() -> None:
    from agents.algorithms.ppo import PPOConfig

    with pytest.raises(ConfigurationError, match="learning_rate of ppo: steps=500 of a schedule over progress must be"):
        PPOConfig(learning_rate={**HALF, "steps": 500})


def test_problems_of_a_players_own_algorithm_name_the_player(tmp_path: Path) -> None:
    players = {
        "main": {"kind": "main_agent", "algorithm": {"learning_rate": HALF}},
        "a": {"kind": "main_exploiter", "algorithm": {"magnet_every": 0, "magnet_cofficient": 1.0}},
    }
    config = Config(folder=str(tmp_path), league={"env": "matrix:rps", "players": players})
    with pytest.raises(ConfigurationError) as caught:
        verify(config, "train")
    said = [problem for problem in caught.value.problems if "algorithm of player" in problem]
    assert len(said) == 1 and "algorithm of player 'a': setting of ppo 'magnet_cofficient'" in said[0]
