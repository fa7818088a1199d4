"""Tests of benchmarks.learning.teams: its figures are those of the runs, which differ in the algorithm alone."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.apparatus.seeds import composed
from benchmarks.learning import teams

SPREAD, SPEAKER = (teams.GAMES_BY_NAME[name] for name in ("simple-spread", "simple-speaker-listener"))
ALGORITHMS = {"IPPO": "ppo", "MAPPO": "ppo", "VDN": "qmix", "QMIX": "qmix"}


@pytest.mark.parametrize("game", teams.GAMES_BY_NAME.values(), ids=teams.GAMES_BY_NAME.keys())
def test_all_sides_have_the_same_game(game: teams.Game) -> None:
    configs = {side: composed([*own, "env.goal=null"]) for side, (_, own) in game.sides.items()}
    played = {(c.env.id, c.unroll_length, c.env.team_reward, c.env.reward_scale) for c in configs.values()}
    assert played == {(game.env, teams.LENGTH, None, 1.0)}
    assert all(config.env.goal is None for config in configs.values())
    assert all(config.algorithm["name"] == ALGORITHMS[side] for side, config in configs.items())


def test_all_sides_of_simple_spread_have_as_many_copies() -> None:
    configs = [composed([*side.settings]) for side in SPREAD.sides.values()]
    assert {(config.env.num_envs, config.actors) for config in configs} == {(16, 2)}
    assert {side.steps for side in SPREAD.sides.values()} == {300_000}


@pytest.mark.parametrize("game", [SPREAD, SPEAKER], ids=["spread", "speaker"])
def test_ippo_and_mappo_differ_in_what_their_value_sees_alone(game: teams.Game) -> None:
    ippo, mappo = (composed([*game.sides[side].settings]) for side in ("IPPO", "MAPPO"))
    assert game.sides["IPPO"].steps == game.sides["MAPPO"].steps
    assert (ippo.env.num_envs, ippo.actors, ippo.algorithm) == (mappo.env.num_envs, mappo.actors, mappo.algorithm)
    assert mappo.network.pop("privileged") == ["state"] and ippo.network.pop("privileged", []) == []
    assert ippo.network == mappo.network


def test_a_run_is_reported_as_the_mean_of_each_tenth_of_its_steps() -> None:
    curve = [(step, float(step)) for step in range(50, 1001, 50)]
    assert teams.by_parts(curve, 1000) == [(100 * n, 100 * n - 25.0) for n in range(1, 11)]
    assert teams.by_parts([(990, 1.0), (1010, 2.0)], 1000) == [(1000, 1.5)]  # the last update may end beyond the budget


def test_figures_are_those_of_the_last_tenth_with_an_interval() -> None:
    game = teams.Game("mpe:simple_spread", {"IPPO": teams.Side(10, ()), "MAPPO": teams.Side(10, ())}, {})
    curves = {"IPPO": [[(1, -20.0), (10, last)] for last in (-10.0, -11.0, -12.0)]}
    curves |= {"MAPPO": [[(1, -22.0), (10, last)] for last in (-7.0, -8.0, -9.0)]}
    found = teams.figures(game, curves)
    assert found["mean_return"] == {"IPPO": -11.0, "MAPPO": -8.0}
    assert found["interval"]["IPPO"] == pytest.approx(4.303 / np.sqrt(3), abs=0.01)  # Student's t, 2 degrees
    assert found["in_the_first_tenth"] == {"IPPO": -20.0, "MAPPO": -22.0}
    assert found["p_beside_IPPO"] == {"MAPPO": 0.1}
    assert teams.half_interval([1.0]) is None


def test_an_assigned_agent_goes_to_the_landmark_left_for_it() -> None:
    """Agent 1 stands on landmark 0, the nearest of agent 0: the sum of distances is least if 0 takes landmark 1."""
    places = np.array([(0.0, 0.0), (-0.2, 0.0), (0.0, 1.0)])
    landmarks = np.array([(-0.2, 0.0), (0.6, 0.0), (0.0, 1.0)])
    seen = np.zeros((3, 18))
    seen[:, 2:4] = places
    seen[:, 4:10] = (landmarks - places[:, None]).reshape(3, 6)
    right, stay = 2, 0
    assert teams.assigned(seen, np.random.default_rng(0)).tolist() == [right, stay, stay]


def test_assigned_agents_get_a_higher_return_than_random_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpe2")
    monkeypatch.setattr(teams, "GAMES", 8)
    assert teams.returns(SPREAD.env, teams.assigned) > teams.returns(SPREAD.env, teams.at_random) + 5


def test_a_listener_goes_to_the_landmark_that_the_speaker_names(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpe2")
    monkeypatch.setattr(teams, "GAMES", 100)
    assert teams.returns(SPEAKER.env, teams.informed) == pytest.approx(-8.7, abs=1.5)
    assert teams.returns(SPEAKER.env, teams.to_the_middle) == pytest.approx(-15.3, abs=2.5)
