"""Structured configs of the groups: they have the settings of the dataclasses, and composing a run checks them."""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from subprocess import run
from typing import Any

import hydra
import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from support.composed import by_hydra, settings

from agents.algorithms import ALGORITHMS, a2c, appo, bc, ddpg, dqn, impala, ppo, qmix, r2d2, sac, td3
from agents.networks import NETWORKS, NormalizationConfig, PrivilegedConfig
from agents.networks.board_resnet import BoardConfig
from agents.networks.impala_resnet import ImpalaConfig
from agents.networks.mlp import MLPConfig
from agents.networks.nature_cnn import NatureCNNConfig
from agents.policies.build import BoxActionsConfig, DiscreteActionsConfig, DistributionConfig, ValueConfig
from warren.errors import ConfigurationError
from workers.config import groups
from workers.config.league import LeagueConfig
from workers.config.overrides import arranged, compose, in_full, options_of, settings_of, sweep
from workers.config.own_folders import OwnFolders
from workers.config.schema import CONF, from_hydra

OF_ALGORITHMS = {
    "a2c": a2c.A2CConfig, "appo": appo.APPOConfig, "bc": bc.BCConfig, "ddpg": ddpg.DDPGConfig, "dqn": dqn.DQNConfig,
    "impala": impala.IMPALAConfig, "ppo": ppo.PPOConfig, "qmix": qmix.QMIXConfig, "r2d2": r2d2.R2D2Config,
    "sac": sac.SACConfig, "td3": td3.TD3Config,
}  # fmt: skip
OF_NETWORKS = {
    "board_resnet": BoardConfig, "impala_resnet": ImpalaConfig, "mlp": MLPConfig, "nature_cnn": NatureCNNConfig
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_hydra_is_left() -> Iterator[None]:
    yield
    GlobalHydra.instance().clear()


def defaults(*kinds: type) -> dict[str, Any]:
    """Return the defaults of dataclasses as YAML has them; None for required fields."""
    found = {}
    for one in (one for kind in kinds for one in fields(kind)):
        required = one.default is MISSING and one.default_factory is MISSING
        value = None if required else one.default if one.default_factory is MISSING else one.default_factory()
        found[one.name] = list(value) if isinstance(value, tuple) else value
    return found


def declared(kind: type) -> Any:
    return OmegaConf.to_container(OmegaConf.structured(kind))


def composed(*overrides: str) -> Any:
    found = compose("train", [in_full(one) for one in overrides])
    assert found is not None
    return from_hydra(settings_of(found))


@pytest.mark.parametrize("name", OF_ALGORITHMS)
def test_config_of_an_algorithm_has_the_fields_and_defaults_of_its_class(name: str) -> None:
    assert declared(groups.algorithms()[name]) == {"name": name, **defaults(OF_ALGORITHMS[name])}


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_config_of_a_network_has_its_own_and_the_common_settings(name: str) -> None:
    kinds = (OF_NETWORKS[name], NormalizationConfig, PrivilegedConfig, ValueConfig, DistributionConfig)
    tables = {"box_actions": defaults(BoxActionsConfig), "discrete_actions": defaults(DiscreteActionsConfig)}
    own = {"name": name, **defaults(*kinds), **tables}
    assert declared(groups.networks()[name]) == own


def test_config_of_a_league_has_the_fields_and_defaults_of_its_class() -> None:
    assert declared(groups.league()) == {**defaults(LeagueConfig), "players": {}}


def test_every_registered_algorithm_and_network_has_a_config_and_a_file() -> None:
    assert set(ALGORITHMS) == set(groups.algorithms()) == set(OF_ALGORITHMS)
    assert set(NETWORKS) == set(groups.networks()) == set(OF_NETWORKS)
    for group, names in (("algorithm", OF_ALGORITHMS), ("network", OF_NETWORKS)):
        assert {path.stem for path in (CONF / group).glob("*.yaml")} == {*names, "own"}


@pytest.mark.parametrize("group", ["algorithm", "league", "network"])
def test_every_file_of_a_group_begins_from_its_config(group: str) -> None:
    for path in CONF.glob(f"{group}/*.yaml"):
        schema = group if group == "league" else f"{group}/{path.stem}"
        place = "algorithm" if "# @package _global_" in path.read_text() else "_here_"  # the file sets a network, too
        assert path.stem == "own" or f"defaults: [/schema/{schema}@{place}, _self_]" in path.read_text().splitlines()


def test_a_composed_run_shows_all_settings_of_its_algorithm_network_and_league() -> None:
    config = composed("algorithm=impala", "network=nature_cnn", "league=kuhn")
    assert set(config.algorithm) == {"name", *defaults(OF_ALGORITHMS["impala"])}
    assert config.algorithm["adam_beta1"] == 0.9 and config.network["vector_hidden_size"] == 64
    assert config.league["lease"] == 60.0 and type(config.algorithm) is type(config.league) is dict


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["algorithm.epochs=many"], "algorithm.epochs=many: give a whole number"),
        (["total_steps=1e6"], "total_steps=1e6: give a whole number, as in 1000000"),
        (["env.reward_scale=one"], "env.reward_scale=one: give a number"),
        (["algorithm.epochs=2.5"], "algorithm.epochs=2.5: give a whole number"),
        (["network.shared=maybe"], "network.shared=maybe: give true or false"),
        (["league=kuhn", "league.goal=soon"], "league.goal=soon: give a number"),
    ],
)  # fmt: skip
def test_value_of_a_wrong_type_is_refused_when_the_run_is_composed(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        composed(*overrides)
    (problem,) = error.value.problems
    assert problem.startswith(says)


def test_value_of_a_wrong_type_in_a_file_is_refused_with_file_and_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnFolders, "config_dir", None)  # composing sets it for the whole process
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/wrong_type.yaml").write_text("# @package _global_\nnetwork: {shared: maybe}\n")
    with pytest.raises(ConfigurationError) as error:
        compose("train", ["--config-dir", str(tmp_path), "experiment=wrong_type"])
    (problem,) = error.value.problems
    assert problem.startswith("experiment/wrong_type.yaml: network.shared: Value 'maybe' is not a valid bool")


@pytest.mark.parametrize(
    ("override", "table", "value"),
    [
        ("algorithm.adam_beta1=0.8", "algorithm", {"adam_beta1": 0.8}),
        ("+algorithm.adam_beta1=0.8", "algorithm", {"adam_beta1": 0.8}),
        ("+network.normalize_values=true", "network", {"normalize_values": True}),
        ("+network.core.name=lstm", "network", {"core": {"name": "lstm"}}),
        ("network.core.size=3", "network", {"core": {"size": 3}}),
        (
            "network.box_actions.squashed=true",
            "network",
            {"box_actions": {**defaults(BoxActionsConfig), "squashed": True}},
        ),
    ],
)
def test_settings_can_be_set_with_and_without_a_plus(override: str, table: str, value: Any) -> None:
    found = getattr(composed(override), table)
    assert {name: found[name] for name in value} == value


def test_users_algorithm_and_network_keep_their_own_settings() -> None:
    config = composed("algorithm=own", "+algorithm.alpha=1", "network=own", "network.depth=3")
    assert config.algorithm == {"name": "path/to/file.py:build", "alpha": 1}
    assert config.network == {"name": "path/to/file.py:build", "depth": 3}


def test_a_users_file_may_build_on_a_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf/algorithm").mkdir(parents=True)
    (tmp_path / "conf/algorithm/slow.yaml").write_text("defaults: [ppo, _self_]\nlearning_rate: 1e-5\n")
    monkeypatch.chdir(tmp_path)
    algorithm = composed("algorithm=slow").algorithm
    assert (algorithm["name"], algorithm["learning_rate"], algorithm["epochs"]) == ("ppo", 1e-5, 6)


def test_players_of_a_league_can_be_added_and_removed() -> None:
    players = composed("league=kuhn", "league.players.new={kind: self_play}", "~league.players.main").league["players"]
    assert players["new"] == {"kind": "self_play"} and "main" not in players


def test_a_run_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from workers.config.command_line import command

    made, loaded = [], []
    compose_all = hydra._internal.hydra.Hydra.compose_config
    monkeypatch.setattr(
        "hydra._internal.hydra.Hydra.compose_config",
        lambda self, *given, **named: loaded.append(given) or compose_all(self, *given, **named),
    )
    monkeypatch.setattr(sys, "argv", ["train", "actors=7", "sampling=streaming"])
    with pytest.raises(SystemExit) as ended:
        command("train", lambda config, given: made.append((config.actors, list(given))) or 3)()
    assert (ended.value.code, made) == (3, [(7, ["actors=7", "sampling=streaming"])])
    assert len(loaded) == 1


def test_a_command_leaves_sys_argv_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workers.config.command_line import command

    monkeypatch.chdir(tmp_path)
    for words in (["actors=7", "seed=1,2", "--multirun"], ["seed=3", "league=kuhn", "league.goal=1"]):
        given, ran = ["train", *words], list[Any]()
        monkeypatch.setattr(sys, "argv", list(given))
        with pytest.raises(SystemExit) as ended:
            command("train", lambda config, _, ran=ran: ran.append(config.seed) or 0)()  # type: ignore[misc]
        assert (ended.value.code, sys.argv, ran) == (0, given, [1, 2] if "--multirun" in words else [3])


def test_a_sweep_is_split_as_hydra_splits_it() -> None:
    words = [
        "seed=1,2",
        "env.kwargs={a: 1, b: [2,3]}",
        "actors=range(2,4)",
        "project='a,b'",
        "+x=choice(a,b)",
        "~league",
    ]
    split = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(words), None)
    assert [sweep("train", words)] == split and len(split[0]) == 8
    assert sweep("train", ["algorithm.gamma=interval(0,1)"]) == [["algorithm.gamma=interval(0,1)"]]


def test_only_overrides_py_uses_private_parts_of_hydra() -> None:
    files = [path for path in CONF.parent.glob("workers/**/*.py") if "hydra._internal" in path.read_text()]
    assert [path.name for path in files] == ["overrides.py"]
    words = ["--multirun", "--cfg", "job", "--config-dir", "mine", "-cn", "train", "seed=1", "actors=2"]
    found = options_of(words)
    assert (found.overrides, found.multirun, found.cfg, found.config_dir, found.config_name) == (
        ["seed=1", "actors=2"], True, "job", "mine", "train"
    )  # fmt: skip
    others = ("help", "hydra_help", "info", "resolve", "shell_completion", "config_path", "experimental_rerun")
    assert not any(getattr(found, name) for name in others)
    assert arranged(["actors=2", "--multirun", "seed=1"]) == (["--multirun"], ["actors=2", "seed=1"])


# Python 3.14's argparse checks the help of each option that is added.
CHECKS_OF_HELPS = """
import argparse
if not hasattr(argparse.ArgumentParser, "_check_help"):
    add = argparse.ArgumentParser.add_argument
    def checked(parser, *words, **given):
        action = add(parser, *words, **given)
        parser._check_help(action)
        return action
    argparse.ArgumentParser.add_argument = checked
    argparse.ArgumentParser._check_help = lambda parser, action: "%" in (action.help or "")
"""


def test_python_that_checks_helps_of_options_takes_hydras() -> None:
    code = f"{CHECKS_OF_HELPS}from workers.config.overrides import options_of; print(options_of(['--resolve', 'a=1']))"
    done = run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "overrides=['a=1']" in done.stdout, done.stderr


def test_options_of_others_may_have_no_help() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", help=None, action="store_true")
    assert parser.parse_args(["--quiet"]).quiet


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("experiment=rps", "league=kuhn", "++league.games=3", "actors=3", "++network.new={a: [1]}", "trial=null"),
        ("+network.new=3", "algorithm=dqn"),
        ("network={hidden_sizes: [3]}",),
    ],
    ids=" ".join,
)
def test_settings_of_other_tests_are_those_that_hydra_composes(overrides: tuple[str, ...]) -> None:
    assert settings("train", *overrides) == by_hydra("train", overrides)


def test_hydras_store_is_not_copied_and_no_composition_changes_it() -> None:
    store = ConfigStore.instance()
    assert copy.deepcopy(store) is store
    before = OmegaConf.to_container(store.load("schema/algorithm/ppo.yaml").node)
    assert composed("algorithm.gamma=0.5").algorithm["gamma"] == 0.5
    assert OmegaConf.to_container(store.load("schema/algorithm/ppo.yaml").node) == before


def test_composing_imports_neither_torch_nor_agents() -> None:
    code = (
        "import sys; from workers.config.overrides import compose; compose('train', ['league=kuhn']);"
        "print({'torch', 'agents'} & set(sys.modules))"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "set()\n"
