"""`algorithm=NAME` on the command line of a league: the settings that count."""

from __future__ import annotations

from workers.config.league_choices import with_choices
from workers.config.schema import Config, EnvConfig

LEAGUE = {"algorithm": {"name": "ppo", "learning_rate": 0.003, "gamma": 1.0, "epochs": 4, "entropy_decay_steps": 500}}
IMPALA = {"name": "impala", "learning_rate": 6e-4, "gamma": 0.99, "entropy_decay_steps": None, "rho_bar": 1.0}


def algorithm_of(choice: str | None, *overrides: str, **algorithm: object) -> dict[str, object]:
    config = Config(trial="t", run="r", env=EnvConfig(id="e"), league=dict(LEAGUE), algorithm=dict(algorithm))
    made = with_choices(config, choice, overrides)
    assert made.league is not None
    return dict(made.league["algorithm"])


def test_a_league_keeps_its_own_algorithm_where_none_is_chosen() -> None:
    assert algorithm_of("ppo", "actors=3", name="ppo", learning_rate=1e-3, epochs=10) == LEAGUE["algorithm"]
    assert algorithm_of(None, name="ppo", learning_rate=1e-3) == LEAGUE["algorithm"]


def test_a_chosen_algorithm_takes_settings_that_it_has_from_the_leagues_file() -> None:
    assert algorithm_of("impala", "algorithm=impala", **IMPALA) == {
        "name": "impala", "learning_rate": 0.003, "gamma": 1.0, "entropy_decay_steps": 500, "rho_bar": 1.0
    }  # fmt: skip


def test_settings_of_the_command_line_win() -> None:
    given = {**IMPALA, "gamma": 0.5}
    assert algorithm_of("impala", "algorithm=impala", "algorithm.gamma=0.5", **given)["gamma"] == 0.5
    found = algorithm_of("ppo", "algorithm.epochs=9", name="ppo", epochs=9, gamma=0.99)
    assert found == {**LEAGUE["algorithm"], "epochs": 9}


def test_a_users_algorithm_gets_the_settings_given_to_it() -> None:
    found = algorithm_of("own", "algorithm=own", "+algorithm.alpha=1", name="file.py:build", alpha=1)
    assert found == {"name": "file.py:build", "alpha": 1}


def players_of(*overrides: str, **players: dict[str, object]) -> dict[str, object]:
    config = Config(trial="t", run="r", env=EnvConfig(id="e"), league={**LEAGUE, "players": players}, algorithm=IMPALA)
    made = with_choices(config, "impala", ["algorithm=impala", *overrides])
    assert made.league is not None
    return {name: player["algorithm"] for name, player in made.league["players"].items()}


def test_a_chosen_algorithm_takes_settings_that_it_has_from_each_player() -> None:
    own = {"epochs": 1, "gamma": 0.9}
    assert players_of(main={"algorithm": own}) == {"main": {"gamma": 0.9}}
    given = "league.players.main.algorithm.epochs=1"
    assert players_of(given, main={"algorithm": own}) == {"main": own}, "kept, for a later check to refuse"
    other = {"name": "ppo", "epochs": 2}
    assert players_of(main={"algorithm": other}) == {"main": other}


def test_a_run_without_a_league_is_left_alone() -> None:
    config = Config(trial="t", run="r", env=EnvConfig(id="e"), algorithm=dict(IMPALA))
    assert with_choices(config, "impala", ["algorithm=impala"]) is config
