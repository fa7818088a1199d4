"""Settings of leagues whose games have more than two players, or whose players take one side each."""

from typing import Any

import pytest

import envs
from warren.errors import ConfigurationError
from workers.config import league_games
from workers.config.league import LeagueConfig
from workers.evaluation.duplicate_deals import require_two_sides

KUHN, THREE, TEAMS = "openspiel:kuhn_poker", "openspiel:kuhn_poker?players=3", "examples/teams/tokens.py:Tokens"
MAIN = {"main": {"kind": "main_agent"}}


def problems(env: str, players: dict[str, Any] = MAIN, served: bool = False, **settings: Any) -> list[str]:
    league = LeagueConfig.from_dict({"env": env, "players": players, "evaluation_share": 0, **settings})
    return list(league_games.unfit(league, envs.make_two_player(env, 2, 0), served))


def of_sides(**sides: Any) -> dict[str, Any]:
    return {
        name: {"kind": "main_agent", "config": {} if side is None else {"side": side}} for name, side in sides.items()
    }


def test_leagues_of_three_players_of_teams_and_of_roles_are_accepted() -> None:
    assert problems(THREE) == problems(TEAMS, evaluation_share=0.2) == problems(KUHN, of_sides(a=0, b=1)) == []
    assert problems(KUHN, evaluation_share=0.2, goal=0.1, evaluation="exact") == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"goal": 0.1}, r"goal=0.1 is of two sides .* has 3 sides; use goal=null"),
        ({"evaluation": "exact"}, "evaluation=exact, .* use evaluation=games and evaluation_share=0"),
        ({"evaluation_share": 0.2}, "evaluation_share=0.2: payoffs between frozen players are of two sides"),
        ({"players": {"main": {"kind": "psro"}}}, "'main': kind psro goes by returns of two sides"),
        ({"served": True}, "sampling=served is of games of two players, and .* has 3; use gathered or streaming"),
        ({"replay_every": 1}, "set them to 0 and null"),
        (
            {"players": {"main": {"kind": "main_agent", "minimax": 0.1}}},
            "minimax=0.1 of player 'main' is of games of two",
        ),
    ],
)
def test_settings_that_need_two_sides_are_refused_for_three(settings: dict[str, Any], problem: str) -> None:
    (found,) = problems(THREE, **settings)
    with pytest.raises(ConfigurationError, match=problem):
        raise ConfigurationError(found)


@pytest.mark.parametrize(
    ("players", "settings", "problem"),
    [
        (of_sides(a=0, b=None), {}, "'b' has no config.side, and others have"),
        (of_sides(a=0, b=1, c=2), {}, "config.side=2 of player 'c': the game has 2 sides, from 0 to 1"),
        (of_sides(a=0), {}, "no player takes side 1; add one with config.side=1"),
        (of_sides(a=0, b=1), {"goal": 0.1}, "its players take one side each"),
    ],
)
def test_wrong_sides_of_players_are_named(players: Any, settings: Any, problem: str) -> None:
    assert any(problem in found for found in problems(KUHN, players, **settings))


@pytest.mark.parametrize(("side", "roles"), [(None, False), (0, True)])
def test_a_side_of_null_is_no_role(side: int | None, roles: bool) -> None:
    player = {"kind": "main_agent", "config": {"side": side}}
    assert LeagueConfig.from_dict({"env": KUHN, "players": {"main": player}}).has_roles is roles


def test_only_games_of_two_sides_can_be_measured() -> None:
    with pytest.raises(ConfigurationError, match="has 3 sides; games of two can be measured so"):
        require_two_sides(envs.make_two_player(THREE, 1, 0))
    require_two_sides(envs.make_two_player(TEAMS, 1, 0))
