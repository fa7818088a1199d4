"""The settings that a resumed run keeps."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from warren.errors import ConfigurationError
from workers.config.resuming import changes, is_fixed
from workers.config.schema import Config, EnvConfig, from_yaml
from workers.launch.kinds.training import resumed


@pytest.mark.parametrize(
    "name",
    [
        "project", "trial", "experiment", "restore", "env", "env.id", "env.kwargs", "env.kwargs.x", "env.grey",
        "env.reward_channels.speed", "env.reward_clip", "env.channel_values", "network", "network.hidden_sizes",
        "algorithm", "algorithm.name", "league", "league.env", "league.env_kwargs.x", "league.network.width",
        "league.players.main.kind", "league.settings.shares",
    ],
)  # fmt: skip
def test_resume_keeps_what_the_weights_depend_on(name: str) -> None:
    assert is_fixed(name)


@pytest.mark.parametrize(
    "name",
    ["actors", "seconds", "broker", "algorithm.learning_rate", "league.goal", "league.algorithm.discount", "env.goal"],
)
def test_resume_may_change_other_settings(name: str) -> None:
    assert not is_fixed(name)


def test_settings_of_the_environment_that_a_resume_may_change_are_listed() -> None:
    changeable = {one.name for one in fields(EnvConfig) if not is_fixed(f"env.{one.name}")}
    assert changeable == {"num_envs", "vectorization", "workers", "goal", "goal_episodes"}


def test_changes_are_told_apart_from_errors() -> None:
    taken, problems = changes(["resume=runs/x", "folder=runs", "broker=private", "actors=3", "env.id=other"])
    assert taken == ["broker.mode=private", "actors=3"]
    assert problems == ["env.id=other: cannot be changed when a run is resumed; start a new run for it"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it holds no settings"),
        ("- 1\n", "it holds no settings"),
        ("seed: [1\nactors: {", "line 2: expected ',' or ']', but got ':'"),
        ("\udcff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_damaged_settings_of_a_run_folder_name_the_file_and_a_remedy(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ConfigurationError) as resuming:
        resumed(Config(resume=str(tmp_path)), [])
    with pytest.raises(ConfigurationError) as reading:
        from_yaml(file)
    problem = f"{file} is damaged ({reason}); put a copy of it back, or the config.yaml of a run with the same settings"
    assert resuming.value.problems == reading.value.problems == [problem]
