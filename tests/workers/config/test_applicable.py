"""Settings without effect on the chosen kind of run are refused; settings of the other kinds are left alone."""

from __future__ import annotations

from collections.abc import Iterator

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra

from workers.config import applicable
from workers.config.league_choices import with_choices
from workers.config.overrides import in_full
from workers.config.schema import CONF, Config, from_hydra


@pytest.fixture(autouse=True)
def conf() -> Iterator[None]:
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


def composed(*overrides: str) -> tuple[Config, list[str]]:
    given = [in_full(override) for override in overrides]
    return from_hydra(hydra.compose("train", given)), given


def problems(*overrides: str) -> list[str]:
    return list(applicable.problems(*composed(*overrides)))


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (["restore=/nope"], "restore: is of a league, and none is chosen: add league=NAME, or leave it out"),
        (["evaluators=2"], "add league=NAME"),
        (["league_workers=2"], "add league=NAME"),
        (["env_runners=4"], "sampling=gathered has no env runners: add sampling=served"),
        (["served_memory=foo"], "add sampling=served"),
        (["compression=nonsense"], "add learners=2"),
        (["on_rank_loss=foo"], "add learners=2"),
        (["middleware=[timed.py:Timed]"], "add sampling=served or league=NAME"),
        (["gateway.port=-5"], "env.id=gamecore:FILE:CLASS"),
        (["league=kuhn", "env.id=Acrobot-v1"], "a league's game is league.env"),
        (["league=kuhn", "env=acrobot"], "a league's game is league.env"),
        (["league=kuhn", "env.kwargs.x=1"], "league.env_kwargs"),
        (["league=kuhn", "env.num_envs=8"], "league.games"),
        (["league=kuhn", "unroll_length=4"], "league.unroll_length"),
        (["league=kuhn", "league.seed=7"], "seed=N"),
    ],
)
def test_setting_without_effect_is_refused_with_the_remedy(overrides: list[str], remedy: str) -> None:
    (problem,) = problems(*overrides)
    assert problem.startswith(f"{overrides[-1].partition('=')[0]}: ")
    assert remedy in problem


@pytest.mark.parametrize(
    "overrides",
    [
        ["league=kuhn", "restore=x", "evaluators=2", "league_workers=2", "seconds=60"],
        ["sampling=served", "env_runners=4", "served_memory=travelling"],
        ["learners=2", "compression=fp16", "top_k=0.1", "allreduce=torch", "on_rank_loss=continue"],
        ["env.id=gamecore:game.py:Game", "sampling=streaming", "gateway.port=1"],
        ["env=acrobot", "env.num_envs=8", "unroll_length=16", "seconds=60", "seed=3"],
        ["experiment=kuhn", "actors=4"],
    ],
)
def test_setting_of_the_chosen_kind_of_run_is_taken(overrides: list[str]) -> None:
    assert problems(*overrides) == []


def test_file_of_settings_may_hold_those_of_other_kinds() -> None:
    config, _ = composed("env_runners=4", "restore=x")
    assert list(applicable.problems(config, ["experiment=mine"])) == []


@pytest.mark.parametrize(
    ("overrides", "network"),
    [
        ([], {"name": "mlp", "hidden_sizes": [64]}),
        (["network.hidden_sizes=[256]"], {"name": "mlp", "hidden_sizes": [256]}),
        (["network=board_resnet"], {"name": "board_resnet"}),
        (["network=board_resnet", "network.blocks=3"], {"name": "board_resnet", "blocks": 3}),
        (["network=mlp", "network.hidden_sizes=[8]"], {"name": "mlp", "hidden_sizes": [8]}),
    ],
)
def test_league_takes_over_the_network_of_the_command_line(overrides: list[str], network: dict[str, object]) -> None:
    config, given = composed("league=kuhn", *overrides)
    made = with_choices(config, "ppo", given).league
    assert made is not None
    assert {name: made["network"].get(name) for name in network} == network
    if overrides and "board_resnet" in overrides[0]:
        assert "hidden_sizes" not in made["network"]
