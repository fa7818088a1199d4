"""`--help` of commands lists each setting with its name, value and meaning."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from workers.config import described, help, roles
from workers.config.league import LeagueConfig
from workers.config.schema import BrokerConfig, Config, EnvConfig, GatewayConfig
from workers.config.watching import EvaluationConfig, MetricsConfig


def said(role: str, *overrides: str) -> dict[str, str]:
    """Return the lines that help prints, by their first words."""
    text = "\n".join(help.text(role, list(overrides))).replace("\n" + " " * described.COLUMN, " ")  # joins split lines
    return {line.split()[0]: line for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("kind", [Config, BrokerConfig, EnvConfig, EvaluationConfig, GatewayConfig, MetricsConfig])
def test_every_setting_of_the_schema_says_what_it_means(kind: type) -> None:
    file = f"{kind.__module__.rpartition('.')[2]}.py"
    texts = described.of_file(Path(described.PLACE / file))[kind.__name__]
    # Tables need no text: their settings are listed one by one.
    tables = {"broker", "env", "network", "algorithm", "gateway", "evaluation", "imitation", "metrics", "replay"}
    assert [one.name for one in fields(kind) if not texts[one.name] and one.name not in tables] == []


def test_help_of_a_run_has_each_setting_with_its_value_and_meaning() -> None:
    lines = said("train", "actors=7")
    assert lines["actors=7"].endswith("[int] processes that play")
    assert "pixels a side" in lines["env.resize=null"]
    assert "sizes" not in lines["network.hidden_sizes=[64,64]"].removeprefix("  network.hidden_sizes")
    assert lines["algorithm.learning_rate=0.0015"].endswith("[float or table] of the optimizer")
    undescribed = [line for name, line in lines.items() if "=" in name and len(line.split()) < 3]
    assert undescribed == []


def test_help_of_a_league_has_the_leagues_settings() -> None:
    assert "[float or null] exploitability" in said("train", "league=kuhn")["league.goal=null"]
    assert "goal" in described.of_file(described.PLACE / "league.py")[LeagueConfig.__name__]


@pytest.mark.parametrize("role", roles.ROLES, ids=lambda role: role.name)
def test_help_of_a_role_has_only_its_own_settings(role: roles.Role) -> None:
    lines = said(role.name)
    names = {name.partition("=")[0] for name in lines}
    assert {"run", "broker.url", "log_level", *filter(None, (role.id, role.device, role.switch))} <= names
    assert not {"actors", "total_steps", "algorithm.learning_rate", "env.id"} & names
    assert next(iter(lines.values())).startswith(f"python -m workers.{role.name} run=NAME")


def test_help_cut_off_by_a_pipe_is_no_error() -> None:
    line = f"{sys.executable} -m workers.train --help | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("python -m workers.train") and done.stderr == ""
    assert done.returncode in (0, 141)
