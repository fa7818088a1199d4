"""The command line: wrong settings are all reported, errors are one message, and no password is ever shown."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import launched

from warren.errors import BrokerError, ConfigurationError
from warren.standard_streams import DISK_FULL, PIPE_CLOSED
from workers.config import verifying
from workers.config.command_line import NO_RUN, guarded
from workers.config.overrides import arranged, compose, set_aside, sweep
from workers.config.schema import CONF, Config, EnvConfig
from workers.config.too_many import NO_THREAD
from workers.servers.forks import Forks
from workers.servers.ports import free_port


def refused(*overrides: str, role: str = "train") -> list[str]:
    with pytest.raises(ConfigurationError) as error:
        compose(role, list(overrides))
    return error.value.problems


def command(role: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return launched.command(f"workers.{role}", *arguments, given=environment)


def test_right_overrides_are_no_error() -> None:
    assert compose("train", ["actors=3", "sampling=streaming", "broker=embedded", "+env.kwargs.x=1"]) is not None
    assert compose("train", ["algorithm=dqn", "algorithm.name=dqn", "network.name=mlp"]) is not None


def test_a_sweep_is_checked_run_by_run() -> None:
    assert compose("train", ["--multirun", "seed=1,2", "sampling=gathered,streaming"]) is None
    assert sweep("train", ["seed=1,2", "actors=3"]) == [["seed=1", "actors=3"], ["seed=2", "actors=3"]]
    (problem,) = refused("--multirun", "seed=1,two")
    assert problem.startswith("seed=two: give a whole number")
    (problem,) = refused("--multirun", "trial=x", "seed=1,2")
    assert problem == "--multirun: trial=x would be the same for all runs; leave it out"
    (problem,) = refused("--multirun", "actor_id=1,2", role="actor")
    assert "workers.actor joins one run" in problem


@pytest.mark.slow
def test_runs_of_a_sweep_follow_each_other_in_folders_of_their_own(tmp_path: Path) -> None:
    done = command(
        "train", "--multirun", "seed=1,2", "broker=embedded", f"folder={tmp_path}", "total_steps=1024", "actors=1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = [json.loads(path.read_text()) for path in tmp_path.glob("*/*/outcome.json")]
    assert [outcome["state"] for outcome in outcomes] == ["finished", "finished"]
    seeds = [
        line for path in tmp_path.glob("*/*/config.yaml") for line in path.read_text().splitlines() if "seed:" in line
    ]
    assert sorted(seeds) == ["seed: 1", "seed: 2"]


def test_all_wrong_overrides_and_values_are_reported_together() -> None:
    found = refused("actrs=3", "env=cartpol", "seed=one", "sampling=both", "actors=0")
    assert len(found) == 5
    assert "setting 'actrs' does not exist; did you mean actors" in found[0]
    assert "env: 'cartpol' does not exist; did you mean cartpole?" in found[1]
    assert found[2] == "seed=one: give a whole number"
    assert found[3].startswith("sampling=both: Invalid value 'both', expected one of [gathered, streaming, served]")
    assert found[4] == "actors: 0 is too small; it must be at least 1"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("actors", "actors: is not a setting; write settings as name=value"),
        ("=3", "=3: is not a setting; write settings as name=value"),
        ("env=3", "env=3: Config group override must be a string"),
        ("algorithm.clip=0.3", "did you mean algorithm.clip_range"),
        ("algorithm=game.py:build", "algorithm=game.py:build: code of yours is algorithm=own algorithm.name=game.py:"),
        ("network=game:build", "network=game:build: code of yours is network=own network.name=game:build"),
        ("league=game:build", "league: 'game:build' does not exist"),
        ("algorithm.name=dqn", "algorithm.name=dqn: write algorithm=dqn, which has the settings of 'dqn' too"),
        ("++network.name=nature_cnn", "network.name=nature_cnn: write network=nature_cnn, which has the settings of"),
        ("hydra.nonsense=1", "setting 'hydra.nonsense' does not exist"),
        ("~env.goal", "env.goal"),
        ("actors=[1", "actors=[1: the value cannot be read; is a bracket or a quote of it left open?"),
        ("actors=1;2", "actors=1;2: the value cannot be read; put it in quotes: 'actors=\"1;2\"'"),
        ("env.id=game.py:Game(1)", "put it in quotes: 'env.id=\"game.py:Game(1)\"'"),
        ("env.id=a'b", "the value cannot be read; put it in quotes"),
        (
            "folder=a,b",
            "folder=a,b: commas separate values; write for one text 'folder=\"a,b\"', for a list 'folder=[a,b]', "
            "for a run of each add --multirun",
        ),
    ],
)
def test_a_mistyped_override_is_one_message_with_the_remedy(override: str, says: str) -> None:
    (message,) = refused(override)
    assert says in message


@pytest.mark.parametrize(
    "override",
    [
        "broker.url=[amqp://u:secretpw@host",
        "broker.url=amqp://u:secret,pw@host/",
        "broker.url={a:amqp://u:secretpw@host}",
        "broker.ulr=amqp://u:secretpw@host/",
        "broker=amqp://u:secretpw@host/",
    ],
)
def test_a_mistyped_url_is_shown_without_its_password(override: str) -> None:
    found = "\n".join(refused(override))
    assert "secret" not in found
    assert "pw" not in found


def test_an_unknown_setting_in_a_file_is_named_with_the_file(tmp_path: Path) -> None:
    shutil.copytree(CONF, tmp_path / "conf")
    (tmp_path / "conf/experiment/mine.yaml").write_text("# @package _global_\nbatch_segment: 3\n")
    problems = refused("--config-dir", str(tmp_path / "conf"), "experiment=mine", "seed=x")
    wrong = "experiment/mine.yaml: setting 'batch_segment' does not exist; did you mean batch_segments"
    assert problems[0].startswith(wrong)
    assert len(problems) == 2


@pytest.mark.parametrize(
    "argv",
    [
        ["league=kuhn", "league.goal=null", "--cfg", "job"],
        ["--cfg", "job", "league=kuhn", "league.goal=null"],
        ["league=kuhn", "--cfg", "job", "league.goal=null"],
    ],
)
def test_options_may_stand_anywhere_among_the_overrides(argv: list[str]) -> None:
    assert arranged(argv) == (["--cfg", "job"], ["league=kuhn", "++league.goal=null"])


def test_settings_of_open_tables_need_no_plus() -> None:
    tables = [
        "algorithm.mine=1",
        "network.box_actions={squashed: true}",
        "env.kwargs={gravity: 3}",
        "env.kwargs.depth=3",
        "replay.buffer_settings.newest=4",
    ]
    options, overrides = arranged([*tables, "seed=2"])
    assert options == []
    assert overrides == [*(f"++{table}" for table in tables), "seed=2"]
    assert compose("train", ["algorithm=own", *overrides]) is not None


def test_algorithm_and_league_settings_of_a_resume_are_set_aside() -> None:
    given = ["resume=x", "algorithm.rho_bar=0.9", "++league.goal=1", "seed=2"]
    assert set_aside(given) == (["resume=x", "seed=2"], ["algorithm.rho_bar=0.9", "++league.goal=1"])
    assert set_aside(given[1:]) == (given[1:], [])


def test_settings_without_effect_are_reported_with_all_other_problems(tmp_path: Path) -> None:
    found = command("train", f"folder={tmp_path}", "restore=/nope", "env_runners=3", "actors=0", "league.goal=3")
    assert (found.returncode, "Traceback" in found.stderr) == (2, False)
    found = command("train", f"folder={tmp_path}", "restore=/nope", "env_runners=3", "actors=0")
    assert found.returncode == 2
    errors = [line.split(":")[1].strip() for line in found.stderr.splitlines() if line.startswith("error:")]
    assert errors == ["actors", "restore", "env_runners"]
    assert list(tmp_path.rglob("config.yaml")) == []


def test_user_error_is_one_message_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise BrokerError("the broker is down; start it")

    assert guarded(run) == 2
    assert capsys.readouterr().err == "error: the broker is down; start it\n"


def test_several_problems_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise ConfigurationError(["one", "two"])

    assert guarded(run, NO_RUN) == 2
    assert capsys.readouterr().err == "error: one\nerror: two\n2 settings are wrong; no run was started\n"
    assert guarded(run) == 2
    assert capsys.readouterr().err == "error: one\nerror: two\n2 errors in all\n", "not every command starts a run"


def test_ctrl_c_before_the_run_has_status_130() -> None:
    def run() -> int:
        raise KeyboardInterrupt

    assert guarded(run) == 130


def test_a_bug_is_not_caught() -> None:
    def run() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(run)


# Through the actual command line.


def test_a_broker_that_is_down_is_one_error_without_its_password(tmp_path: Path) -> None:
    done = command(
        *("train", f"folder={tmp_path}", "broker=external"),
        *("broker.url=amqp://u:secretpw@127.0.0.1:1/", "broker.redis_url=redis://:secretpw@127.0.0.1:1/0"),
    )
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line and not line.startswith("perceptrons=auto:")] == [
        "error: broker amqp://u:***@127.0.0.1:1/ is down: nothing listens there; "
        "start it, or leave its URL out and let broker=auto choose"
    ]
    assert "secretpw" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [], "a run that did not begin leaves no folder"


def test_a_wrong_password_is_one_error_that_names_the_user(
    broker_url: str, redis_url: str, tmp_path: Path, run_name: str
) -> None:
    user, _, rest = broker_url.removeprefix("amqp://").partition(":")
    wrong = f"amqp://{user}:wrongpw@{rest.partition('@')[2]}"
    done = command("actor", f"run={run_name}", WARREN_BROKER_URL=wrong, WARREN_REDIS_URL=redis_url)
    assert done.returncode == 2
    assert f"refuses the password of user {user!r}" in done.stderr
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    assert "wrongpw" not in done.stdout + done.stderr


def test_wrong_settings_end_the_command_with_status_2_and_no_traceback(tmp_path: Path) -> None:
    done = command("train", f"folder={tmp_path}", "actrs=3", "env=3", "actors=0")
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == ["error"] * 3
    assert lines[-1] == "3 settings are wrong; no run was started"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_run_needs_no_open_standard_streams(tmp_path: Path, closed: str) -> None:
    line = [sys.executable, "-m", "workers.train", "broker=embedded", "total_steps=1024", "actors=1"]
    done = subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', *line, f"folder={tmp_path}"], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    (outcome,) = tmp_path.glob("*/*/outcome.json")
    assert json.loads(outcome.read_text())["state"] == "finished"


def test_a_run_whose_output_has_no_room_goes_on_and_says_so_at_its_end(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "workers.train", "broker=embedded", "total_steps=1024", f"folder={tmp_path}"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == DISK_FULL and re.fullmatch(
        "error: .*No space left on device; free some .*\n", done.stderr
    )
    (outcome,) = tmp_path.glob("*/*/outcome.json")
    assert json.loads(outcome.read_text())["state"] == "finished"


@pytest.mark.parametrize("option", ["--cfg job", "--info config"])
def test_settings_that_cannot_be_printed_are_one_error(option: str) -> None:
    line = [sys.executable, "-m", "workers.train", *option.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (DISK_FULL, 1)
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("options", ["--resolve", "--cfg job --multirun"])
def test_options_that_hydra_does_not_take_together_are_one_error(options: str) -> None:
    done = command("train", *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"error: {options}: .*--cfg.*; python -m workers.train --help lists options\n", done.stderr)


@pytest.mark.parametrize("module", ["workers.config.command_line", "league.models.command_line"])
def test_a_command_needs_no_open_standard_output(module: str) -> None:
    code = f"import sys; from {module} import guarded; sys.exit(guarded(lambda: sys.stdout.flush() or 0))"
    done = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("module", ["workers.config.command_line", "league.models.command_line"])
def test_a_command_prints_what_the_encoding_of_its_output_lacks(module: str) -> None:
    text = "'caf\\xe9 \\u2026 \\udcff'"  # a latin letter, an ellipsis, a byte of a file's name that is no UTF-8
    code = f"import sys; from {module} import guarded; sys.exit(guarded(lambda: print({text}) or 0))"
    for encoding, printed in (("latin-1", b"caf\xe9 \\u2026"), ("utf-8", "café …".encode())):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, printed + b" \\udcff\n", b"")


@pytest.mark.parametrize("module", ["workers.config.command_line", "league.models.command_line"])
def test_a_command_whose_reader_has_left_ends_as_in_shells(module: str) -> None:
    code = f"import sys; from {module} import guarded; sys.stdin.read(); sys.exit(guarded(lambda: print('x') or 0))"
    line = [sys.executable, "-c", code]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as begun:
        assert begun.stdin and begun.stdout and begun.stderr
        begun.stdout.close()
        begun.stdin.close()
        assert (begun.stderr.read(), begun.wait()) == (b"", PIPE_CLOSED)


@pytest.mark.parametrize("module", ["workers.config.command_line", "league.models.command_line"])
def test_a_command_whose_output_has_no_room_says_so(module: str) -> None:
    code = f"import sys; from {module} import guarded; sys.exit(guarded(lambda: print('x') or 0))"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == DISK_FULL and re.fullmatch("error: .*No space left on device.*free some.*\n", done.stderr)


def test_a_path_that_cannot_be_used_is_one_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: len(tmp_path.read_bytes())) == 2
    assert capfd.readouterr().err == f"error: {tmp_path}: Is a directory; let this user use it, or name another place\n"


def refuse_to_fork() -> None:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def begin_a_process() -> int:
    return os.fork()


def begin_a_thread() -> int:
    raise RuntimeError(NO_THREAD)


@pytest.mark.parametrize("begin", [begin_a_process, begin_a_thread])
def test_a_process_too_many_is_one_error_that_names_the_limit(
    begin: Callable[[], int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "fork", refuse_to_fork)
    assert guarded(begin) == 2
    assert "raise ulimit -u, or the container's pids limit" in capfd.readouterr().err


def test_a_socket_that_would_block_is_not_taken_for_a_process_too_many() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            guarded(lambda: len(one.recv(1)))


def test_without_a_process_to_fork_off_each_process_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", refuse_to_fork)
    monkeypatch.setattr("workers.servers.fork_server.threads", lambda: 1)
    assert Forks.begin() is None


def test_an_actor_by_hand_without_urls_says_what_to_set() -> None:
    done = command("actor", "run=some-run")
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert "broker.url and broker.redis_url: not given" in done.stderr
    assert "WARREN_BROKER_URL and WARREN_REDIS_URL" in done.stderr


def test_a_wrong_resume_names_run_folders_and_fixed_settings(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "t"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("project: project\n")
    done = command("train", f"folder={tmp_path}", "resume=nowhere")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: resume: nowhere is not a run folder (it has no config.yaml); the newest run folders are {folder}\n"
    )
    done = command(
        *("train", f"resume={folder}", "env.id=Acrobot-v1", "+env.kwargs.x=1", "network.hidden_sizes=[8]"),
        *("experiment=acrobot", "actors=3"),
    )
    assert done.returncode == 2
    assert done.stderr.count("cannot be changed when a run is resumed; start a new run for it") == 4
    assert "actors" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flags_first", [True, False])
def test_a_leagues_settings_and_flags_may_come_in_either_order(flags_first: bool) -> None:
    flags, overrides = ("--cfg", "job"), ("league=kuhn", "seed=3", "league.goal=null", "league.period_steps=77")
    done = command("train", *(flags + overrides if flags_first else overrides + flags))
    assert done.returncode == 0, done.stderr
    assert "period_steps: 77" in done.stdout and "seed: 3" in done.stdout


def test_a_password_among_the_overrides_of_a_resume_is_not_printed(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "t"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("project: project\n")
    secret = "broker.url=amqp://user:wrongpw@127.0.0.1//"
    done = command("train", f"resume={folder}", secret, "algorithm.minibatch_size=many")
    assert done.returncode == 2 and "error: resume: " in done.stderr
    assert "wrongpw" not in done.stdout + done.stderr


def test_a_password_among_the_overrides_of_a_sweep_is_not_kept(tmp_path: Path) -> None:
    port = free_port()
    urls = (f"broker.url=amqp://user:wrongpw@127.0.0.1:{port}//", f"broker.redis_url=redis://:wrongpw@127.0.0.1:{port}")
    done = command("train", "--multirun", "seed=1,2", *urls, f"folder={tmp_path}")
    assert done.stderr.count("is down: nothing listens there") == 2, done.stderr
    (kept,) = (tmp_path / "multirun").glob("*/multirun.yaml")
    assert "user:***@127.0.0.1" in kept.read_text()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if b"wrongpw" in path.read_bytes()]


def test_an_environment_whose_constructor_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "game.py").write_text("import time\nclass Game:\n    def __init__(self):\n        time.sleep(600)\n")
    monkeypatch.setattr(verifying, "WITHIN", 0.5)
    game = f"{tmp_path}/game.py:Game"
    for config in (
        Config(folder=str(tmp_path), env=EnvConfig(id=game)),
        Config(folder=str(tmp_path), env=EnvConfig(id=game), device="cuda"),  # CUDA cannot be used after a fork
        Config(folder=str(tmp_path), league={"env": game}),
    ):
        setting = "env.id" if config.league is None else "league.env"
        message = rf"{setting}: .*game.py:Game could not be built and tested within 0.5 s; does its constr"
        with pytest.raises(ConfigurationError, match=message):
            verifying.problems_of_building(config, None)


def test_a_number_other_than_0_or_1_is_no_boolean() -> None:
    assert refused("compile=5", "fork=2") == [
        "compile: 5 is neither true nor false; use one of them", "fork: 2 is neither true nor false; use one of them"
    ]  # fmt: skip
    assert compose("train", ["compile=1", "fork=0", "actors=5", "deterministic=true"]) is not None
