"""Command lines of name=value: parsing, errors and `--help`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from warren.errors import ConfigurationError
from workers.config.name_value import parse, settings_text
from workers.config.schema import GatewayConfig
from workers.deployment.settings import DeployConfig


@dataclass
class Table:
    size: int = 1 << 4  # of it
    on: bool = False  # whether it is


@dataclass
class Settings:
    run: str  # a folder
    span: float | None = None  # s; null: for good
    silent: str = "word"
    kwargs: dict[str, Any] = field(default_factory=dict)  # more
    table: Table = field(default_factory=Table)


def test_help_lists_each_setting_with_its_default_and_what_it_means() -> None:
    assert settings_text(Settings).splitlines() == [
        "Settings:",
        "  run             a folder",
        "  span=null       s; null: for good",
        "  silent=word",
        "  kwargs={}       more",
        "  table.size=16   of it",
        "  table.on=false  whether it is",
    ]


def test_what_help_lists_can_be_given() -> None:
    listed = [line.split()[0] for line in settings_text(Settings).splitlines()[1:]]
    made = parse(Settings, ["run=here", "span=2", *(one for one in listed if "=" in one and "span" not in one)])
    assert made == Settings("here", span=2.0)
    with pytest.raises(ConfigurationError, match=r"setting 'table.sise' does not exist; did you mean table\.size"):
        parse(Settings, ["run=here", "table.sise=3"])


def test_a_folder_as_a_word_of_its_own_is_refused_with_the_setting_that_takes_it(tmp_path: Path) -> None:
    for words in ([str(tmp_path)], [str(tmp_path), "silent=x"]):
        with pytest.raises(ConfigurationError) as raised:
            parse(Settings, words)
        assert raised.value.problems == [f"{tmp_path}: is not a setting; write run={tmp_path} for this folder"]
    with pytest.raises(ConfigurationError, match="none: is not a setting; write settings as name=value"):
        parse(Settings, ["none"])


def test_deploy_lists_all_of_its_settings() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workers.deploy", "--help"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0].partition("=")[0] for line in done.stdout.split("Settings:\n")[1].splitlines()}
    own = set(DeployConfig.__dataclass_fields__) - {"gateway"}
    assert listed == own | {f"gateway.{name}" for name in GatewayConfig.__dataclass_fields__}
