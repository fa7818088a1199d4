"""Errors of the league's commands if Redis is not named, or if the run has ended."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from league.cli import manage, models, replay, show
from league.models.command_line import RUN_VARIABLE, URL_VARIABLE
from workers.servers.__main__ import main as servers

COMMANDS = [(show.main, []), (manage.main, ["pause", "main"]), (models.main, ["list"])]
ENTRY = """\"\"\"`python -m league.{name}`: see league/cli/{name}.py.\"\"\"

import sys

from league.cli.{name} import main

if __name__ == "__main__":
    sys.exit(main())
"""
OF_AN_ENDED_RUN = "python -m league.replay --file runs/PROJECT/TRIAL"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (URL_VARIABLE, f"{URL_VARIABLE}_FILE", RUN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("main", "words"), COMMANDS, ids=["show", "manage", "models"])
def test_a_missing_redis_url_error_says_how_to_give_one(main, words, capsys):
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: where Redis is was not given; give --redis URL or set WARREN_REDIS_URL: ")
    assert 'eval "$(python -m workers.servers env)"' in line and line.endswith(OF_AN_ENDED_RUN)


def test_an_unreachable_redis_error_names_the_command_for_ended_runs(capsys):
    with socket.socket() as held:  # bound, but nothing listens
        held.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{held.getsockname()[1]}/0"
        assert show.main(["--redis", url, "--run", "kuhn"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Redis does not answer (") and line.endswith(OF_AN_ENDED_RUN)


@pytest.mark.parametrize(("main", "words"), [(servers, ["env"]), (replay.main, ["--file", "runs/PROJECT/TRIAL"])])
def test_commands_named_in_errors_exist(main, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0, capsys.readouterr().err


def test_each_command_is_in_cli_behind_an_entry_that_only_calls_it():
    league = Path(show.__file__).parents[1]
    commands = [path.stem for path in (league / "cli").glob("*.py") if "def main(" in path.read_text()]
    assert sorted(commands) == ["manage", "models", "replay", "show"]
    for name in commands:
        (entry,) = (one for one in (league / f"{name}.py", league / name / "__main__.py") if one.exists())
        assert entry.read_text() == ENTRY.format(name=name)
