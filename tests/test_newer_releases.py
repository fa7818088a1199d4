"""Tests of refusals of data from a newer release: one line that names both versions and the one to use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf
from support.experience import random_trajectory

import warren
from agents import build_algorithm, build_policy, checkpoints
from envs import EnvSettings, spaces
from league.state.replay import FORMAT, STREAM, read_folder
from warren import formats
from warren.errors import CheckpointError, ConfigurationError, LeagueError, WarrenError
from workers.config.schema import Config, from_yaml, to_yaml
from workers.config.written_by import check_messages
from workers.env.group import Group
from workers.learning.delivery import Delivery
from workers.rollout.sending.numbering import Numbering
from workers.rollout.served.sampler import ServedSampler
from workers.runtime.run_settings import taken
from workers.runtime.trained import load

NEWER = {"format": 1000, "release": "7.2.0"}
HERE = re.escape(warren.__version__)
BOTH = rf"written by Warren 7\.2\.0 in format 1000, and this is Warren {HERE}, .*; use Warren 7\.2\.0 or newer"


def is_one_line(error: Any) -> bool:
    assert isinstance(error, WarrenError)
    return "\n" not in str(error) and re.search(BOTH, str(error)) is not None


def checkpoint_in(folder: Path) -> Path:
    policy = build_policy({"hidden_sizes": [2]}, *spaces("CartPole-v1"), 0)
    return checkpoints.save(folder, "00000001", policy, build_algorithm("ppo", {}, policy, 0), {})


def rewritten(path: Path) -> bytes:
    """Return the bytes of a checkpoint with the stamp of a newer release."""
    old, new = (json.dumps(one)[1:-1].replace('"', '\\"').encode() for one in (formats.stamp(1), NEWER))
    data = path.read_bytes()
    assert data.count(old) == 1
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].rstrip().replace(old, new)
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def test_a_newer_checkpoint_is_neither_loaded_nor_passed_over(tmp_path: Path) -> None:
    older, path = checkpoint_in(tmp_path), tmp_path / "00000002.safetensors"
    path.write_bytes(rewritten(checkpoint_in(tmp_path)))
    assert checkpoints.load(older).name == "00000001"
    older.unlink()
    assert checkpoints.latest(tmp_path) == path, "the newer checkpoint was passed over"
    with pytest.raises(CheckpointError) as error:
        checkpoints.load(tmp_path)
    assert is_one_line(error.value) and str(path) in str(error.value)
    with pytest.raises(CheckpointError) as error:
        checkpoints.from_bytes(path.read_bytes(), "main@2")
    assert is_one_line(error.value)


def newer(config: Config, **more: Any) -> str:
    tree = OmegaConf.create(to_yaml(config))
    assert isinstance(tree, DictConfig)
    assert tree.written_by.release == warren.__version__
    tree.written_by.update(NEWER | more)
    tree.a_setting_of_tomorrow = 3
    return OmegaConf.to_yaml(tree)


def test_a_configuration_is_refused_before_its_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(newer(Config()))
    for read in (lambda: from_yaml(path), lambda: load(tmp_path)):
        with pytest.raises(ConfigurationError) as error:
            read()
        assert is_one_line(error.value) and str(path) in str(error.value)


def test_the_error_for_an_unknown_setting_names_the_newer_release(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(newer(Config(), format=formats.CONFIGURATION))
    both = rf"{path} was written by Warren 7\.2\.0, and this is Warren {HERE}: use Warren 7\.2\.0"
    says = rf"a_setting_of_tomorrow: .*; {both}"
    with pytest.raises(ConfigurationError, match=says) as error:
        from_yaml(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("stamp", [{"messages": 1000, "release": "7.2.0"}, None, {}, "no table"])
def test_a_role_does_not_join_a_run_with_another_message_format(stamp: dict[str, Any] | str | None) -> None:
    settings = OmegaConf.create(to_yaml(Config(run="mine")))
    assert isinstance(settings, DictConfig)
    check_messages(settings, "mine")
    del settings["written_by"]
    if stamp is not None:
        settings.written_by = stamp
    of, number = ("Warren 7.2.0", 1000) if isinstance(stamp, dict) and stamp else ("an older Warren", 1)
    says = f"run: mine is of {of}, whose processes speak in messages of format {number}, and this is Warren {HERE}"
    with pytest.raises(ConfigurationError, match=says) as error:
        taken(Config(run="mine"), OmegaConf.to_yaml(settings), ())
    assert "\n" not in str(error.value)


def test_a_league_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / STREAM).write_text('{"id": "1-0", "fields": {"event": "of tomorrow"}}\n')
    (tmp_path / FORMAT).write_text(json.dumps(NEWER))
    with pytest.raises(LeagueError) as error:
        list(read_folder(tmp_path))
    assert is_one_line(error.value) and str(tmp_path) in str(error.value)


def test_a_segment_is_refused_and_the_others_of_its_call_are_used() -> None:
    policy = build_policy({"hidden_sizes": [2]}, *spaces("CartPole-v1"), 0)
    numbering, spec = Numbering.__new__(Numbering), policy.spec()
    numbering._source, numbering._next = "actor-0", 0
    own = numbering.number(random_trajectory(policy, 4, 2))
    refused: list[Exception] = []
    taken_in: list[Any] = []
    delivery = Delivery([[own, own | {"written_by": NEWER}]], lambda _, error: refused.append(error))
    delivery.read(spec, taken_in.append)
    assert len(taken_in) == 1 and len(refused) == 1 and is_one_line(refused[0])


def test_a_call_of_an_env_runner_is_refused() -> None:
    settings = EnvSettings("CartPole-v1", vectorization="sync")
    sampler = ServedSampler(build_policy({"hidden_sizes": [2]}, *spaces(settings), 0), 3, 2, 0)
    sampler.load(sampler.policy.state_dict(), 1)
    group = Group("a", settings, 2, 3)
    (answer, refused) = sampler.act([group.call(), group.call() | {"group": "b", "written_by": NEWER}])
    assert isinstance(answer, dict) and np.shape(answer["action"]) == (2,)
    assert is_one_line(refused) and "group b" in str(refused)
