"""Tests of the example of a user's own game: its two forms are one game, and conf/league/mine.yaml learns it."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

import envs
from envs import exploitability
from envs.check import check
from workers.config.league import LeagueConfig
from workers.config.schema import CONF
from workers.evaluation.scores import table
from workers.leagues.local import LocalLeague

FORMS = ["examples/nim/nim.py:Nim", "examples/nim/vectorised.py:Nim"]
BY_RULES = "examples/kuhn/kuhn.py:Kuhn"


@pytest.mark.parametrize("env_id", [*FORMS, BY_RULES])
def test_every_form_is_accepted(env_id: str) -> None:
    check(env_id, {}, two_player=True)


def test_both_forms_are_one_game() -> None:
    first, second = (envs.make_two_player(env_id, 3, 0) for env_id in FORMS)
    one, other, generator = first.reset(), second.reset(), np.random.default_rng(0)
    for _ in range(40):
        for name in ("to_move", "observation", "action_mask", "reward", "done"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        action = (generator.random(one.action_mask.shape) * one.action_mask).argmax(axis=1)
        one, other = first.step(action), second.step(action)


@pytest.mark.usefixtures("one_thread")
def test_the_starter_settings_learn_to_leave_a_multiple_of_four() -> None:
    config = LeagueConfig.from_dict(yaml.safe_load((CONF / "league/mine.yaml").read_text()))
    league = LocalLeague(config)
    left = np.array([left for left in range(1, 16) if left % 4])  # positions with a winning move
    observation, action_mask = np.eye(16, dtype=np.float32)[left], np.arange(1, 4) <= left[:, None]
    found = 0.0
    for _ in range(60):
        league.round()
        action = league.trainees["main"].policy.step(observation, mode="greedy", action_mask=action_mask).action
        found = float(np.mean(action + 1 == left % 4))
        if found >= 0.8:
            break
    assert found >= 0.8


@pytest.mark.usefixtures("one_thread")
def test_the_starter_settings_beat_uniform_play_in_the_game_by_rules() -> None:
    settings = yaml.safe_load((CONF / "league/mine.yaml").read_text())
    league = LocalLeague(LeagueConfig.from_dict({**settings, "env": BY_RULES}))
    form = exploitability.load(BY_RULES)
    start = exploitability.of(form, exploitability.uniform(form))
    assert start == pytest.approx(11 / 24)
    found = start
    for number in range(60):
        league.progress = number / 60  # snapshots are due at shares of the run
        league.round()
        slots, shares = league.mixture()
        tables = [table(form, league.policy_of(int(slot))) for slot in slots]
        found = exploitability.of(form, exploitability.mixture(form, tables, shares))
        if found < start / 2:
            break
    assert found < start / 2
