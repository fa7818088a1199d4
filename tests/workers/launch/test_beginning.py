"""Tests of a run's start: servers boot while the configuration is verified, and a failed start leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.launched import Launched
from support.waiting import until

from warren.errors import BrokerError, ConfigurationError
from workers.config.schema import Config
from workers.launch.kinds import training

BOOTS_FOREVER = "exec sleep 600"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return the place for run folders, in a folder that does not exist yet either."""
    return tmp_path / "new" / "runs"


def rabbitmq(tmp_path: Path, server: str) -> str:
    """Return a PATH with a RabbitMQ whose server is the shell script `server`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    scripts = {"rabbitmq-server": server, "rabbitmqctl": "exit 0", "erl": "exit 0", "epmd": BOOTS_FOREVER}
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return f"{programs}:{os.environ['PATH']}"


def of_folder(folder: Path) -> list[psutil.Process]:
    """Return the processes that write a log below `folder`, guards among them."""

    def writes(process: psutil.Process) -> bool:
        try:
            files = [os.path.realpath(file) for file in Path(f"/proc/{process.pid}/fd").glob("*")]
        except OSError:  # it has ended
            return False
        return any(file.startswith(str(folder)) and file.endswith(".log") for file in files)

    return [process for process in psutil.process_iter() if writes(process)]


def config(runs: Path, **settings: object) -> Config:
    made = Config(folder=str(runs), network={"name": "mlp"}, algorithm={"name": "ppo"}, **settings)  # type: ignore[arg-type]
    made.broker.mode = "private"
    return made


def test_a_wrong_configuration_stops_the_servers_that_boot_and_leaves_nothing(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", rabbitmq(tmp_path, BOOTS_FOREVER))
    wrong = config(runs)
    wrong.network["activation"] = "gelu2"
    problems_of_building, booting = training.problems_of_building, list[psutil.Process]()

    def while_they_boot(config: Config, forks: None) -> list[str]:
        booting.extend(until(lambda: of_folder(runs)))
        return problems_of_building(config, forks)

    monkeypatch.setattr(training, "problems_of_building", while_they_boot)
    with pytest.raises(ConfigurationError, match="activation 'gelu2' does not exist"):
        training.run(wrong, [])
    assert booting, "servers boot while the configuration is verified"
    assert not of_folder(runs) and not runs.parent.exists()


def test_a_wrong_number_is_reported_before_anything_starts(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    monkeypatch.setenv("PATH", rabbitmq(tmp_path, f"touch {started}; {BOOTS_FOREVER}"))
    wrong = config(runs, actors=0)
    wrong.network["activation"] = "gelu2"
    with pytest.raises(ConfigurationError) as caught:
        training.run(wrong, [])
    assert len(caught.value.problems) == 2, "and with it whatever else is wrong"
    assert not started.exists() and not runs.parent.exists()


def test_an_existing_folder_stays_unchanged_when_the_configuration_is_wrong(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", rabbitmq(tmp_path, BOOTS_FOREVER))
    wrong = config(runs, trial="t")
    wrong.network["activation"] = "gelu2"
    folder = runs / wrong.project / "t"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("as it was")
    (folder / "outcome.json").write_text("as it was")
    with pytest.raises(ConfigurationError):
        training.run(wrong, [])
    assert {path.name: path.read_text() for path in folder.iterdir() if path.is_file()} == {
        "config.yaml": "as it was",
        "outcome.json": "as it was",
    }
    assert not of_folder(runs)


@pytest.mark.parametrize(
    ("at", "number"),
    [
        ("while it verifies", signal.SIGINT),
        ("while it waits", signal.SIGINT),
        ("while it waits", signal.SIGTERM),
        ("while it waits", signal.SIGHUP),
    ],
)
def test_a_stop_while_servers_boot_leaves_nothing(tmp_path: Path, runs: Path, at: str, number: int) -> None:
    path = rabbitmq(tmp_path, BOOTS_FOREVER)
    arguments = (f"folder={runs}", "broker=private")
    with Launched(tmp_path / "log", "workers.train", *arguments, given={"PATH": path}) as launcher:
        launcher.until(lambda: (len(of_folder(runs)) > 1 and "verif" in at) or "starting a private" in launcher.output)
        launcher.process.send_signal(number)
        assert launcher.wait() == 130, launcher.output
    assert "Traceback" not in launcher.output
    assert not of_folder(runs) and not runs.parent.exists()


def test_a_server_that_fails_to_boot_is_reported_with_its_log_which_stays(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", rabbitmq(tmp_path, "echo this Erlang is too old; exit 3"))
    with pytest.raises(
        BrokerError, match=r"private RabbitMQ ended with status 3(?s:.*)this Erlang is too old"
    ) as caught:
        training.run(config(runs), [])
    (log,) = runs.glob("*/*/servers/rabbitmq/rabbitmq.log")
    assert str(log) in str(caught.value) and "this Erlang is too old" in str(caught.value)
    assert not of_folder(runs)


IMPORTS = """
import os, sys
before = {**os.environ}
from workers.servers.forks import differing
import workers.config.command_line, workers.launch.launcher
import workers.launch.kinds.training, workers.launch.kinds.training_monitor
print("torch" in sys.modules, differing(before, os.environ))
"""


def test_a_launcher_imports_no_torch_and_nothing_that_prevents_forks() -> None:
    """Either would add seconds to a start."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.stdout == "False []\n", done.stdout + done.stderr


def test_a_forked_process_finds_wrong_settings_too(tmp_path: Path, runs: Path) -> None:
    path = rabbitmq(tmp_path, BOOTS_FOREVER)
    arguments = (f"folder={runs}", "broker=private", "network.activation=gelu2", "algorithm.epochs=0")
    with Launched(tmp_path / "log", "workers.train", *arguments, given={"PATH": path}) as launcher:
        assert launcher.wait() == 2, launcher.output
    *problems, last = launcher.output.splitlines()
    assert [line for line in problems if "activation 'gelu2'" in line] and [
        line for line in problems if "epochs=0" in line
    ]
    assert last == "2 settings are wrong; no run was started"
    assert not of_folder(runs) and not runs.parent.exists()
