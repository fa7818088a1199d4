"""Scores of a league: exploitability in small games, returns against references in all, and the file of scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import envs
from agents import build_policy
from agents.policies import Policy
from envs import exploitability
from league.matchmaking.view import ModelRef
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.evaluation.cell_games import Uniform
from workers.evaluation.scores import FILE, Score, Scores, read_scores

PLAYERS = {"main": {"kind": "main_agent"}}


def league(env: str) -> LeagueConfig:
    return LeagueConfig.from_dict(
        {"env": env, "players": PLAYERS, "network": {"name": "mlp", "hidden_sizes": []}, "reference_games": 512}
    )


def policy_of(config: LeagueConfig, favourite: int) -> Policy:
    games = envs.make_two_player(config.env, 2, 0)
    policy = build_policy(config.network, games.single_observation_space, games.single_action_space, 0)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            parameter.zero_()
            if parameter.shape == (games.num_actions,) and "value" not in name:
                parameter[favourite] = 50.0
    return policy


def test_the_three_pure_strategies_are_exploitable_alone_and_not_together(tmp_path: Path) -> None:
    config = league("matrix:rps")
    scores = Scores(config, tmp_path, 1)
    pure = [policy_of(config, favourite) for favourite in range(3)]
    assert scores.of_policy(pure[0]) == pytest.approx(1.0)
    models = [ModelRef("main", version) for version in range(3)]
    policies = dict(zip(models, pure, strict=True))
    assert scores.of_mixture(models, policies.__getitem__, np.full((2, 3), 1 / 3)) == pytest.approx(0.0, abs=1e-6)
    assert scores.of_policy(None) is None
    assert scores.of_mixture([], policies.__getitem__, np.zeros((2, 0))) is None


def test_mixture_writes_out_each_model_with_a_share_once(tmp_path: Path) -> None:
    config = league("matrix:rps")
    scores, loaded = Scores(config, tmp_path, 1), list[int]()

    def load(model: ModelRef) -> Policy:
        loaded.append(model.version)
        return policy_of(config, model.version)

    models = [ModelRef("main", version) for version in range(3)]
    rock_and_paper = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    assert scores.of_mixture(models, load, rock_and_paper) == pytest.approx(0.5)
    assert loaded == [0, 1]
    assert scores.of_mixture(models, load, np.full((2, 3), 1 / 3)) == pytest.approx(0.0, abs=1e-6)
    assert loaded == [0, 1, 2]
    rock_alone = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert scores.of_mixture(models, load, rock_alone) == pytest.approx(1.0)
    assert scores.of_mixture(models, load, rock_and_paper) == pytest.approx(0.5)
    assert loaded == [0, 1, 2, 1]


def test_returns_against_references_are_over_both_seats(tmp_path: Path) -> None:
    config = league("matrix:rps")
    scores = Scores(config, tmp_path, 1)
    rock, paper = policy_of(config, 0), policy_of(config, 1)
    assert {scores.against(rock, paper), scores.against(paper, rock)} == {-1.0, 1.0}
    assert abs(scores.against(rock, None)) < 0.15  # against uniform, 1,024 games: 5 standard errors


def test_a_game_too_large_to_solve_has_only_references(tmp_path: Path) -> None:
    config = league("openspiel:connect_four")
    scores = Scores(config, tmp_path, 1)
    games = envs.make_two_player(config.env, 2, 0)
    policy = build_policy(config.network, games.single_observation_space, games.single_action_space, 0)
    assert scores.of_policy(policy) is None
    assert -1.0 <= scores.against(policy, None) <= 1.0


def test_scores_name_the_command_for_exact_figures_that_take_minutes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert Scores(league("openspiel:phantom_ttt"), tmp_path, 1).uniform is None
    assert "takes minutes in openspiel:phantom_ttt: python -m workers.exploitability RUN --exact" in caplog.text


def test_a_logged_score_has_the_exploitability_where_it_is_known() -> None:
    known = Score(0.0, 1.0, {"main": 5}, 2, 4096, 0.22, 0.45879, {"uniform": 0.25}, uniform=0.5)
    assert str(known) == (
        "exploitability 0.2200 of the main agent, 0.4588 of the mixture, 0.5000 of uniform play; "
        "the main agent gains +0.250 a game against uniform; 2 frozen players, 4,096 games"
    )
    assert str(Score(0.0, 1.0, {}, 0, 0, None, None, {})) == "0 frozen players, 0 games"


def test_a_goal_for_a_game_too_large_to_solve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="connect_four' has more than 2,000,000 histories"):
        Scores(replace(league("openspiel:connect_four"), goal=0.1), tmp_path, 1)


def test_the_file_of_scores_continues_after_a_half_written_line(tmp_path: Path) -> None:
    config = league("matrix:rps")
    first = Scores(config, tmp_path, 1).record({"main": 5}, 1, 10, 0.5, 0.4, {"uniform": 0.0})
    with (tmp_path / FILE).open("a") as file:
        file.write('{"time": 1')
    again = Scores(config, tmp_path, 1).record({"main": 9}, 2, 20, None, None, {})
    found = read_scores(tmp_path)
    assert [score["steps"]["main"] for score in found] == [5, 9]
    assert again.seconds >= first.seconds
    assert first.uniform == found[0]["uniform"] == pytest.approx(0.0)  # uniform play solves this game


def test_uniform_plays_every_legal_action_and_no_other() -> None:
    mask = np.array([[True, False, True]] * 600)
    action = Uniform().step(np.zeros((600, 1)), {}, action_mask=mask, generator=torch.Generator().manual_seed(0)).action
    counts = np.bincount(action, minlength=3)
    assert counts[1] == 0
    assert min(counts[0], counts[2]) > 240


def test_a_given_sequence_form_is_not_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = league("openspiel:kuhn_poker")
    form, first = exploitability.load(config.env), Scores(config, tmp_path, 1)

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("written out again")

    monkeypatch.setattr(exploitability, "load", again)
    assert Scores(config, tmp_path, 1, form).uniform == first.uniform is not None
