"""Tests of a league whose players learn together: its weights are those of learning apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.native import library
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.leagues import trainee
from workers.leagues.local import LocalLeague

pytestmark = pytest.mark.usefixtures("one_thread")

SOON = {"checkpoint_min_steps": 600, "checkpoint_max_steps": 600}
PPO = {
    "name": "ppo",
    "learning_rate": 0.003,
    "epochs": 2,
    "minibatch_size": 64,
    "gamma": 1.0,
    "entropy_coefficient": {"name": "linear", "start": 0.05, "end": 0.01, "over": "progress"},
    "magnet_coefficient": 0.05,
    "magnet_rate": 0.01,
}


def config(**changes: Any) -> LeagueConfig:
    """Return a small league that does not depend on the time that anything takes."""
    given = {
        "env": "openspiel:kuhn_poker",
        "network": {"hidden_sizes": [16, 16], "activation": "relu"},
        "algorithm": PPO,
        "players": {
            "main": {"kind": "main_agent", "config": SOON, "algorithm": {"proximal_coefficient": 0.1}},
            "exploiter": {"kind": "main_exploiter", "config": SOON, "hyperparameters": {"learning_rate": 0.001}},
            "league_0": {"kind": "league_exploiter", "config": SOON},
            "league_1": {"kind": "league_exploiter", "config": {**SOON, "reset_probability": 1.0}},
        },
        "games": 32,
        "tables": 2,
        "unroll_length": 4,
        "lanes": 32,
        "match_games": 32,
        "period_steps": 300,
        "evaluation_share": 0.0,
        "evaluation_games": 64,
        "evaluation_rounds": 1,
    }
    return LeagueConfig.from_dict({**given, **changes})


def played(updating: str, rounds: int, device: str = "cpu") -> LocalLeague:
    league = LocalLeague(config(updating=updating), device=device)
    for number in range(rounds):
        league.progress = number / rounds
        league.round()
    return league


def weights(league: LocalLeague) -> dict[str, torch.Tensor]:
    learning = {name: player.policy for name, player in league.trainees.items()}
    return {
        name: torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
        for name, policy in (learning | league.frozen).items()
    }


@pytest.mark.parametrize("choice", ["native", "torch"])
def test_players_that_learn_together_end_with_the_weights_of_learning_apart(
    choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if choice == "torch":
        monkeypatch.setattr("agents.algorithms.together.STACKED", ("cpu",))  # torch stacks them as on a GPU
    if choice == "native" and library.library() is None:
        pytest.skip("no C compiler")
    library.choose(choice)
    try:
        together, apart = (weights(played(updating, 12)) for updating in ("together", "separate"))
    finally:
        library.choose("auto")
    assert len(apart) > 8  # frozen ones among them
    assert together.keys() == apart.keys()
    assert max(float((together[name] - apart[name]).abs().max()) for name in apart) < 1e-6


def test_players_act_by_what_they_learned_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    here = weights(played("together", 12))
    monkeypatch.setattr("workers.leagues.local.devices.resolve", lambda _: torch.device("cpu", 0))
    league = played("together", 12)
    for player in league.trainees.values():
        assert player.algorithm.policy is not player.policy
        assert all(map(torch.equal, player.algorithm.policy.state_dict().values(), player.policy.state_dict().values()))
    there = weights(league)
    assert there.keys() == here.keys() and all(torch.equal(there[name], here[name]) for name in here)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_league_learns_on_a_gpu_as_on_the_cpu() -> None:
    here, there = weights(played("separate", 1)), weights(played("together", 1, "cuda"))
    assert there.keys() == here.keys()
    assert max(float((there[name] - here[name]).abs().max()) for name in here) < 1e-4


def test_a_device_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="device='cuda:77' is not there"):
        LocalLeague(config(), device="cuda:77")


def test_updates_wait_for_each_other_until_their_weights_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    made, update = [], trainee.update_together

    def recorded(algorithms: Any, batches: Any) -> Any:
        made.append(len(algorithms))
        return update(algorithms, batches)

    monkeypatch.setattr(trainee, "update_together", recorded)
    league = played("together", 6)
    assert sum(made) == 6 * 4
    assert max(made) >= 2
    assert all(player.version == 6 for player in league.trainees.values())


def test_an_unknown_way_of_updating_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="updating of the league 'batched' does not exist; known"):
        config(updating="batched")


def test_a_partial_round_leaves_no_update_due() -> None:
    league = LocalLeague(config(updating="together"))
    league.round(3)
    assert sum(player.version for player in league.trainees.values()) == 3
    league.round()
    assert sum(player.version for player in league.trainees.values()) == 3 + 4
