"""The causes of failures in a run's folder: appended, bounded, without passwords, and shown by a command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from workers.launch.processes import failure_log
from workers.launch.processes.failure_log import FILE, Entry, FailureLog, read
from workers.launch.traces.failures import main

CRASH = Entry("actor-1", "ValueError: no such card", "restarting actor-1 (1 of 5) in 0.25 s", 1, "game.py:7", 12.0, "x")


def fail_again(text: str) -> None:
    pytest.fail(text)


def test_failures_are_appended_after_a_half_line(tmp_path: Path) -> None:
    FailureLog(tmp_path, fail_again).add(CRASH)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"name": "cut o')  # by a launcher that was killed
    FailureLog(tmp_path, fail_again).add(Entry("run", "no RabbitMQ", "failed"))
    first, second = read(tmp_path)
    assert (first["name"], first["status"], first["where"], first["lived"]) == ("actor-1", 1, "game.py:7", 12.0)
    assert (second["name"], second["cause"], second["then"], second["status"]) == ("run", "no RabbitMQ", "failed", None)


def test_the_file_is_bounded_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_log, "LONGEST", 3_000)
    log = FailureLog(tmp_path, fail_again)
    for number in range(40):
        log.add(Entry(f"actor-{number}", "x" * 300, ""))
    kept = [one["name"] for one in read(tmp_path)]
    assert 6 < len(kept) < 14 and kept == [f"actor-{number}" for number in range(40 - len(kept), 40)]
    log.add(Entry("actor", "y" * 100_000, ""))
    assert len([*read(tmp_path)][-1]["cause"]) < 5_000


def test_passwords_are_left_out(tmp_path: Path) -> None:
    FailureLog(tmp_path, fail_again).add(Entry("run", "cannot reach amqp://warren:secret@host:5672//", "failed"))
    assert "secret" not in (tmp_path / FILE).read_text() and "host:5672" in (tmp_path / FILE).read_text()


def test_each_failure_is_on_the_disk_when_it_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    FailureLog(tmp_path, fail_again).add(CRASH)
    assert synced == [(tmp_path / FILE).stat().st_size]


def test_a_full_disk_is_told_once_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    log = FailureLog(tmp_path, said.append)
    with monkeypatch.context() as full:

        def refuse(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(os, "fsync", refuse)
        log.add(CRASH)
        log.add(CRASH)
    assert len(said) == 1 and "failures are not kept: [Errno 28]" in said[0]


def test_the_command_shows_the_newest_run_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, started in (("old", 1.0), ("new", 2.0)):
        (tmp_path / "cartpole" / name).mkdir(parents=True)
        (tmp_path / "cartpole" / name / "started.json").write_text(json.dumps({"started_at": started}))
    log = FailureLog(tmp_path / "cartpole" / "new", fail_again)
    log.add(CRASH)
    log.add(
        Entry("learner-0", "it printed no error", "restarting learner-0 (1 of 5) in 0.25 s", 137, said="\x1b[2Jend")
    )
    assert main(None, [str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "status 1: ValueError: no such card (game.py:7)" in shown and "12 s" in shown
    assert "SIGKILL" in shown and "2 failures: actor-1 1, learner-0 1" in shown
    assert main(None, [str(tmp_path / "cartpole" / "new"), "--of", "learner", "--said"]) == 0
    shown = capsys.readouterr().out
    assert "actor-1" not in shown and "[2Jend" in shown and "\x1b" not in shown
    assert main(None, [str(tmp_path / "cartpole"), "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["failures"]] == ["actor-1", "learner-0"]
    assert main(None, [str(tmp_path / "cartpole" / "old")]) == 0 and "nothing failed" in capsys.readouterr().out
    assert main(None, [str(tmp_path / "none")]) == 2 and "holds no run" in capsys.readouterr().err
