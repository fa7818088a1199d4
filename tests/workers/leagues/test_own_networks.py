"""Tests of players of one league with networks and algorithms of their own."""

from __future__ import annotations

import threading
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.saved_league import save_league

import envs
from agents import build_policy
from agents.checkpoints import weights_to_bytes
from agents.policies import Policy, SeatMemories
from agents.trajectories import ON_REQUEST, requested
from league.matchmaking.view import ModelRef
from league.state.league_state import Match
from warren.errors import CheckpointError, ConfigurationError
from workers.config import resuming
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.config.validation import problems_of_building
from workers.evaluation.best_response import BestResponse
from workers.evaluation.duplicate_deals import Side, play_deals
from workers.evaluation.saved_sides import league_in, mixture_of, player_of
from workers.leagues import known_players
from workers.leagues.known_players import KnownPlayers
from workers.leagues.local import LocalLeague
from workers.leagues.recipe import LeagueRecipe
from workers.models.verifying import observations_of
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.observation_sample import FILE, ObservationSample
from workers.runtime.trained import load

pytestmark = pytest.mark.usefixtures("one_thread")

SOON = {"checkpoint_min_steps": 250, "checkpoint_max_steps": 250}
SMALL = {"hidden_sizes": [16]}
LSTM, GRU = ({"hidden_sizes": [], "core": {"name": name, "size": size}} for name, size in (("lstm", 4), ("gru", 6)))


def given(**changes: Any) -> dict[str, Any]:
    return {
        "env": "openspiel:kuhn_poker",
        "network": {"name": "mlp", "hidden_sizes": [64, 64], "activation": "relu"},
        "algorithm": {"name": "ppo", "learning_rate": 0.005, "minibatch_size": 128, "epochs": 1, "gamma": 1.0},
        "players": {
            "main": {"kind": "main_agent", "config": SOON},
            "exploiter": {"kind": "main_exploiter", "config": SOON, "network": SMALL},
        },
        "games": 32, "tables": 2, "unroll_length": 4, "lanes": 32, "match_games": 32, "period_steps": 120,
        "evaluation_games": 64, "evaluation_rounds": 1, "cell_least": 64, "cell_error": 0.2, **changes,
    }  # fmt: skip


def players(**own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of main and of the players in `own`."""
    return {"main": {"kind": "main_agent", "config": SOON}, **own}


def same(one: Policy, other: Policy) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in one.state_dict().items())


def width(policy: Policy) -> int:
    return int(next(policy.parameters()).shape[0])


def test_players_of_two_networks_train_score_and_are_loaded_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    local = save_league(folder, given(), 4)
    frozen = {name: width(policy) for name, policy in local.frozen.items()}
    assert {(name.partition("@")[0], size) for name, size in frozen.items()} == {("main", 64), ("exploiter", 16)}
    assert local.returns.total_games > 0
    for name, size in (("main", 64), ("exploiter", 16), *frozen.items()):
        assert width(load(folder, name).policy) == size
    _, league = league_in(folder)
    mixture = mixture_of(folder, league)
    sides = mixture.side, player_of(folder, "exploiter").side
    games = envs.make_two_player(league.env, 64, 1)
    assert np.isfinite(play_deals(games, *sides, 64, torch.Generator().manual_seed(1))).all()


def test_a_best_response_to_a_player_begins_with_its_weights_whatever_its_network() -> None:
    league = LeagueConfig.from_dict(given())
    policy = LeaguePolicies(league).new("exploiter", 3).requires_grad_(False)
    responses = BestResponse(league, Side.of(policy), 600, 1, initial=policy)
    for one in responses.responders:
        assert same(one.policy, policy)
    before = deepcopy(policy)
    assert list(responses.train())[-1] >= 600
    assert same(before, policy) and not any(same(one.policy, policy) for one in responses.responders)


def test_a_players_network_changes_settings_of_the_leagues_or_replaces_it() -> None:
    own = {"one": {"kind": "pfsp", "network": SMALL}, "other": {"kind": "pfsp", "network": {"name": "board_resnet"}}}
    league = LeagueConfig.from_dict(given(players=players(**own)))
    assert league.network_of("main@12") == league.network_of("added") == league.network
    assert league.network_of("one@3") == {"name": "mlp", "hidden_sizes": [16], "activation": "relu"}
    assert league.network_of("other") == {"name": "board_resnet"}


def test_players_network_is_kept_when_a_run_is_resumed() -> None:
    taken, problems = resuming.changes(["league.players.exploiter.network.hidden_sizes=[8]"])
    assert not taken and problems == [
        "league.players.exploiter.network.hidden_sizes=[8]: cannot be changed when a run is resumed; start a new run "
        "for it"
    ]


@pytest.mark.parametrize(
    "own, message",
    [
        (
            {"exploiter": {"kind": "main_exploiter", "initial": "main", "network": SMALL}},
            r"players\.exploiter\.initial=main: exploiter has network .*\[16\].*, and main .*\[64, 64\].*, whose "
            "weights do not fit; give both one network, or initial: null",
        ),
        (
            {"a": {"kind": "pbt_elo"}, "b": {"kind": "pbt_elo", "network": SMALL}},
            r"players\.b\.network=.*players of kind pbt_elo copy each other's weights, and a has network .*; give all",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_beforehand(own: dict[str, Any], message: str) -> None:
    settings = given(players=players(**own))
    with pytest.raises(ConfigurationError, match=message):
        LocalLeague(LeagueConfig.from_dict(settings))
    (problem,) = problems_of_building(Config(league=settings), "train")
    assert problem.startswith("league: players.")


def test_wrong_network_or_algorithm_of_a_player_is_named_with_the_player() -> None:
    own = {
        "one": {"kind": "pfsp", "network": {"hidden_size": [16]}},
        "two": {"kind": "pfsp", "algorithm": {"name": "impala", "clip_range": 0.1}},
        "three": {"kind": "pfsp", "network": LSTM, "algorithm": {"minibatch_size": 2}},
    }
    found = list(problems_of_building(Config(league=given(players=players(**own))), "train"))
    assert [problem.partition(":")[2].split("'")[0:2] for problem in found] == [
        [" network and algorithm of player ", "one"],
        [" network and algorithm of player ", "two"],
        [" player ", "three"],
    ]
    for problem, part in zip(found, ("'hidden_size'", "'clip_range'", "less than one unroll"), strict=True):
        assert part in problem


def test_each_player_learns_by_its_own_algorithm_from_the_fields_it_asks_for() -> None:
    own = {"kind": "main_exploiter", "algorithm": {"name": "impala", "learning_rate": 0.001}}
    league = LocalLeague(LeagueConfig.from_dict(given(players=players(exploiter=own))))
    settings = league.config.algorithm_of("exploiter")
    assert settings == {"name": "impala", "learning_rate": 0.001, "gamma": 1.0}  # and not PPO's minibatch_size
    asked = {name: trainee.algorithm.needs.fields for name, trainee in league.trainees.items()}
    assert [requested(fields) for fields in asked.values()] == [list(ON_REQUEST), ["extras.log_prob", "cut.value"]]
    for name, trainee in league.trainees.items():
        trajectory = trainee.matches.collect(32)
        assert ("value" in trajectory.extras) == (name == "main")
        assert np.isfinite(list(league.learn(trainee).values())).all()


def test_players_with_and_without_memories_play_each_other() -> None:
    own = {
        name: {"kind": "league_exploiter", "config": SOON, "network": net} for name, net in (("l", LSTM), ("g", GRU))
    }
    league = LocalLeague(LeagueConfig.from_dict(given(players=players(**own))))
    for _ in range(4):
        league.round()
    shapes = {name.partition("@")[0]: policy.network.memory for name, policy in league.frozen.items()}
    assert len({tuple(sorted(shape.items())) for shape in shapes.values()}) == len(shapes) == 3
    assert all(trainee.steps == 4 * 128 for trainee in league.trainees.values())


def test_each_seat_keeps_the_memory_of_its_player() -> None:
    spaces = envs.make_two_player("openspiel:kuhn_poker", 1, 0)
    policies = [
        build_policy(net, spaces.single_observation_space, spaces.single_action_space, 1) for net in (LSTM, GRU)
    ]
    held, drawn = SeatMemories(6), np.random.default_rng(1)
    sits, expected = np.array([0, 1, 0, 1, 0, 1]), [{}] * 6
    for turn in range(40):
        seats = np.flatnonzero(drawn.random(6) < 0.5)
        for number, policy in enumerate(policies):
            mine = seats[sits[seats] == number]
            before = held.of(policy, mine)
            for row, seat in enumerate(mine):
                for name, part in before.items():
                    wanted = expected[seat].get(name, torch.zeros(part.shape[1:]))
                    assert torch.equal(part[row], wanted), (turn, name)
            after = {name: part + float(drawn.random()) for name, part in before.items()}
            held.keep(policy, mine, after)
            for row, seat in enumerate(mine):
                expected[seat] = {name: part[row].clone() for name, part in after.items()}
        ended = np.flatnonzero(drawn.random(6) < 0.2)
        held.begin(ended)
        for seat in ended:
            expected[seat], sits[seat] = {}, drawn.integers(2)


def test_verification_skips_observations_of_a_player_with_another_memory(tmp_path: Path) -> None:
    small = {**LSTM, "core": {"name": "lstm", "size": 2}}
    own = {"l": {"kind": "pfsp", "network": LSTM}, "s": {"kind": "pfsp", "network": small}}
    save_league(tmp_path, given(players=players(**own)), 0)
    large = load(tmp_path, "l")
    ObservationSample.of_two(large, 8).write(tmp_path / "players" / "l" / FILE, large.policy)
    assert observations_of(load(tmp_path, "l")).observations == observations_of(load(tmp_path, "main")).observations
    found = observations_of(load(tmp_path, "s"))
    assert {part.shape[1:] for part in found.memory.values()} == {(2,)} and found.observations > 8


# Players that joined later.


class Pool:
    """The newest weights of one player."""

    def __init__(self, policy: Policy, stamp: dict[str, Any]) -> None:
        self._model = SimpleNamespace(version=stamp["version"], data=weights_to_bytes(policy, stamp))

    def newest(self, player: str, newer_than: int = -1) -> Any:
        return self._model


def test_player_that_joined_later_has_the_network_its_weights_name(monkeypatch: pytest.MonkeyPatch) -> None:
    league = LeagueConfig.from_dict(given())
    made = LeaguePolicies(league)
    stamp = {"player": "hunter", "version": 3, "network": league.network_of("exploiter")}
    began = made.new("exploiter", 5)
    session: Any = SimpleNamespace(pool=Pool(began, stamp), app=None, topology=None)
    monkeypatch.setattr(known_players, "Subscription", lambda *_, **__: SimpleNamespace(start=lambda: None))
    known = KnownPlayers(session, "actor-0", made, threading.Event(), patience=20.0)
    match = Match("m", "main", "hunter", "pfsp", "actor", 0, 0, False, False, 0)
    opponent = known.opponents(match, (None,))[0]
    assert opponent is not None and width(opponent) == width(known["hunter"].policy) == 16
    assert same(opponent, began)


def test_learner_of_a_later_player_takes_the_network_of_its_first_weights(tmp_path: Path) -> None:
    league = LeagueConfig.from_dict(given())
    stamp = {"player": "exploiter", "version": 3, "network": league.network_of("exploiter")}
    for player, sizes in (("hunter", [64, 16]), ("main", [64, 64])):
        config = Config(folder=str(tmp_path), project="p", trial="t", run="r", league=given(), player=player)
        session: Any = SimpleNamespace(config=config, pool=None)
        recipe = LeagueRecipe(session, league)
        seen = [width(recipe.new_policy(0))]
        assert recipe.take_network(stamp) is (player == "hunter")
        seen.append(width(recipe.new_policy(0)))
        assert seen == sizes and not recipe.take_network(stamp)
        assert recipe.describe()["network"] == league.network_of("exploiter" if player == "hunter" else "main")


def test_weights_cannot_name_code_that_the_leagues_settings_do_not(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("raise SystemExit('this was run')\n")
    league = LeagueConfig.from_dict(given())
    made = LeaguePolicies(league)
    stamp = {"network": {"name": f"{file}:build"}}
    assert made.network_of("exploiter", stamp) == league.network_of("exploiter")
    data = weights_to_bytes(made.new("exploiter", 3), stamp)
    assert width(made.frozen(ModelRef("exploiter", 1), data)) == 16
    with pytest.raises(CheckpointError, match="main@1 are of another network"):
        made.frozen(ModelRef("main", 1), data)
