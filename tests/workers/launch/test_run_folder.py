"""Tests of the run's folder: one launcher at a time, whole files only, and room for the last files on a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warren.errors import BrokerError, ConfigurationError
from workers.launch import folder as module
from workers.launch.folder import RESERVE, RunFolder
from workers.launch.kinds.training import scaled_counts
from workers.servers import folder_lock
from workers.servers.folder_lock import is_locked


def test_a_second_launcher_is_told_the_folders_holder_and_changes_nothing(tmp_path: Path) -> None:
    with RunFolder.take(tmp_path) as first:
        first.write("config.yaml", "run: first")
        before = sorted(path.name for path in tmp_path.rglob("*"))
        assert is_locked(tmp_path)
        with pytest.raises(
            ConfigurationError, match=r"another run uses the folder .* \(process \d+ on .*\); stop that"
        ):
            RunFolder.take(tmp_path)
        assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert not is_locked(tmp_path)
    RunFolder.take(tmp_path).release()


def test_a_folder_that_cannot_be_made_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = r"folder: the run folder .*/file/own cannot be written \(Not a directory\); choose another folder=\.\.\."
    with pytest.raises(ConfigurationError, match=said):
        RunFolder.take(tmp_path / "file" / "own")


def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder.take(tmp_path) as folder:
        folder.write("outcome.json", '{"state": "before"}')

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(module.os, "fsync", full)
        said: list[str] = []
        folder.write_last("outcome.json", {"state": "stopped"}, said.append)
        assert "No space left on device" in said[0]
        assert folder.read("outcome.json") == {"state": "before"}
        assert not list(tmp_path.glob(".*"))


def test_room_is_kept_for_the_last_files_and_given_up_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder.take(tmp_path) as folder:
        reserve = tmp_path / "servers" / "reserve"
        assert reserve.stat().st_size == RESERVE
        seen: list[bool] = []
        monkeypatch.setattr(module.os, "fsync", lambda _: seen.append(reserve.exists()))
        folder.write_last("outcome.json", {"state": "failed"}, print)
        assert seen == [False]
        assert json.loads((tmp_path / "outcome.json").read_text()) == {"state": "failed"}


def test_unfinished_files_are_removed(tmp_path: Path) -> None:
    kept = [tmp_path / "checkpoints" / "00000001.safetensors", tmp_path / "servers" / "data.tmp"]
    halves = [tmp_path / "checkpoints" / ".00000002.tmp", tmp_path / "players" / "main" / ".3.tmp"]
    for path in (*kept, *halves):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    with RunFolder.take(tmp_path) as folder:
        folder.tidy()
    assert [path.exists() for path in kept] == [True, True]
    assert not any(path.exists() for path in halves)


def test_a_resumed_run_keeps_scaled_counts_except_those_given_anew(tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text('{"actors": 4, "evaluators": 2, "league_workers": "all", "other": 3}')
    assert scaled_counts(tmp_path, []) == {"actors": 4, "evaluators": 2}
    assert scaled_counts(tmp_path, ["actors=1"]) == {"evaluators": 2}
    (tmp_path / "counts.json").write_text("[1")
    assert scaled_counts(tmp_path, []) == {}


@pytest.mark.parametrize("error", [ConfigurationError("a slip"), BrokerError("no server"), KeyboardInterrupt()])
def test_a_start_that_failed_leaves_no_folder(error: BaseException, tmp_path: Path) -> None:
    place = tmp_path / "project" / "trial"
    with pytest.raises(type(error)), RunFolder.take(place) as folder:
        folder.write("config.yaml", "run: t")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_only_the_logs_stay_of_servers_that_failed_to_start(tmp_path: Path) -> None:
    log = tmp_path / "trial" / "servers" / "rabbitmq" / "rabbitmq.log"
    with pytest.raises(BrokerError), RunFolder.take(tmp_path / "trial") as folder:
        folder.write("config.yaml", "run: t")
        log.parent.mkdir()
        log.write_text("this Erlang is too old")
        (log.parent / "epmd.log").touch()
        raise BrokerError("no server")
    assert [path for path in (tmp_path / "trial").rglob("*") if path.is_file()] == [log]


def test_an_error_of_a_run_that_has_begun_leaves_its_folder(tmp_path: Path) -> None:
    with pytest.raises(BrokerError), RunFolder.take(tmp_path / "trial") as folder:
        folder.begun = True
        raise BrokerError("a server ended")
    assert (tmp_path / "trial").is_dir()


def test_a_reader_of_the_lock_keeps_no_launcher_out(tmp_path: Path) -> None:
    RunFolder.take(tmp_path).release()
    with (tmp_path / "servers" / "lock").open() as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (looks, fcntl.LOCK_UN)).start()
        RunFolder.take(tmp_path).release()


def test_a_launcher_that_meets_the_end_of_one_whose_start_failed_has_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, met, removed = tmp_path / "project" / "trial", threading.Event(), threading.Event()

    def wait(_: float) -> None:
        met.set()
        assert removed.wait(60.0)

    monkeypatch.setattr(folder_lock, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(KeyboardInterrupt), RunFolder.take(place):
            taken = threads.submit(RunFolder.take, place)
            assert met.wait(60.0)
            raise KeyboardInterrupt
        assert not place.exists()
        removed.set()
        with taken.result(60.0) as folder:
            folder.write("config.yaml", "run: second")
            assert is_locked(place)


def test_the_lock_of_a_folder_is_removed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, another launcher could begin in the folder while the first one still removes files there."""
    lock, remove, removed = tmp_path / "trial" / "servers" / "lock", os.unlink, []

    def noted(path: Any, **more: Any) -> None:
        assert lock.exists()
        removed.append(Path(path).name)
        remove(path, **more)

    with pytest.raises(KeyboardInterrupt), RunFolder.take(tmp_path / "trial") as folder:
        for name in ("a", "servers/b", "servers/y", "z"):
            (folder.path / name).touch()
        monkeypatch.setattr(os, "unlink", noted)
        raise KeyboardInterrupt
    assert sorted(removed) == ["a", "b", "lock", "reserve", "y", "z"]
