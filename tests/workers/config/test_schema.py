"""Every file under conf/ composes, and a run folder keeps the run's configuration without its secrets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf
from support.composed import configured, settings

from warren.errors import ConfigurationError
from workers.config.roles import ROLES
from workers.config.schema import CONF, BrokerConfig, Config, EnvConfig, Sampling, from_yaml, to_yaml
from workers.servers import MODES

NAMES = ("train", *(role.name for role in ROLES))
LEAGUES = "league"  # test_league_local.py plays every league
OPTIONS = sorted((path.parent.name, path.stem) for path in CONF.glob("*/*.yaml") if path.parent.name != LEAGUES)


@pytest.mark.parametrize("role", NAMES)
def test_every_role_composes(role: str) -> None:
    assert configured(role).algorithm["name"] == "ppo"


@pytest.mark.parametrize("role", NAMES)
def test_the_help_of_every_role_begins_with_its_command(role: str) -> None:
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        header = hydra.compose(role, return_hydra_config=True).hydra.help.header
    assert header.startswith(f"python -m workers.{role}")


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_of_every_group_composes(group: str, option: str) -> None:
    plus = "" if group in ("broker", "env", "network", "algorithm", "experiment") else "+"
    settings("train", f"{plus}{group}={option}")


def outside(group: str, *overrides: str) -> dict[str, Any]:
    """Return the unresolved configuration that overrides compose, without one group."""
    found = OmegaConf.to_container(settings("train", *overrides))
    return {name: value for name, value in found.items() if name != group}  # type: ignore[union-attr]


@pytest.mark.parametrize("option", [option for group, option in OPTIONS if group == "env"])
def test_an_environments_file_sets_nothing_but_env(option: str) -> None:
    assert outside("env", f"env={option}") == outside("env", "env.id=Pendulum-v1")


@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_an_experiment_of_another_environment_sets_its_own_sizes(experiment: str) -> None:
    given: Any = OmegaConf.to_container(OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml"), resolve=False)
    if given.get("env", {}).get("id", "CartPole-v1") != "CartPole-v1":
        assert "num_envs" in given["env"] and "unroll_length" in given


@pytest.mark.parametrize("mode", MODES)
def test_each_broker_mode_is_an_option_without_a_file(mode: str) -> None:
    assert configured("train", f"broker={mode}", "broker.url=amqp://h").broker == BrokerConfig(mode, "amqp://h")
    assert not (CONF / "broker").exists()


@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_every_experiment_composes_with_a_project_of_its_own(experiment: str) -> None:
    config = configured("train", f"experiment={experiment}")
    assert (config.project == "cartpole") == (experiment == "cartpole"), "other experiments have other projects"
    # Points differ from one Atari game to another.
    assert (config.env.goal is None) == (config.league is not None or experiment == "atari")


def test_the_documented_default_is_cartpole_by_ppo_in_gathered_rounds() -> None:
    config = configured("train")
    assert (config.env.id, config.env.goal) == ("CartPole-v1", 475.0)
    assert (config.sampling, config.actors, config.broker.mode) == (Sampling.gathered, 2, "auto")


def test_a_configuration_is_read_back_unchanged(tmp_path: Path) -> None:
    config = configured(
        "train", "sampling=streaming", "actors=3", "+env.kwargs.render_mode=null", "algorithm.learning_rate=3e-4"
    )
    config.trial, config.run = "t", "name"
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert asdict(from_yaml(path)) == asdict(config)


def test_the_file_holds_no_secret() -> None:
    broker = BrokerConfig("external", "amqp://user:secretpw@host/", "redis://:secretpw@host/0")
    text = to_yaml(Config(broker=broker))
    assert "secretpw" not in text
    assert "mode: external" in text
    assert broker.url == "amqp://user:secretpw@host/", "writing must not change the configuration in use"


def test_a_value_of_a_wrong_type_in_a_file_is_one_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(Config()).replace("actors: 2", "actors: many"))
    with pytest.raises(ConfigurationError, match=rf"^{path}: actors: Value 'many' .*could not be"):
        from_yaml(path)


def test_an_unknown_name_in_a_file_is_one_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(Config()) + "actor: 3\n")
    with pytest.raises(ConfigurationError, match=rf"^{path}: actor: Key 'actor'"):
        from_yaml(path)


def test_an_update_takes_one_segment_per_actor_by_default() -> None:
    config = Config(actors=3, unroll_length=10, env=EnvConfig(num_envs=2))
    assert (config.segments_per_update, config.steps_per_update) == (3, 60)
    config.batch_segments = 5
    assert (config.segments_per_update, config.steps_per_update) == (5, 100)
