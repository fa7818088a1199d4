"""Tests of records on their way from actors to the run's folder, through a real Redis."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.played import play_match

from league.models.unsaved import Unsaved
from tasks.topology import Topology
from workers.config.league import LeagueConfig
from workers.config.run_names import run_folder
from workers.config.schema import Config
from workers.leagues.service import take_over_earlier
from workers.replays import sending
from workers.replays.folder import FOLDER, ReplayWriter, read
from workers.replays.sending import ReplayKeeper, ReplaySender, stream_key
from workers.runtime.league_paths import league_folder


@pytest.fixture
def client(redis_url: str, run_name: str) -> Iterator[Any]:
    client = redis.Redis.from_url(redis_url)
    yield client
    client.delete(stream_key(f"warren.{run_name}:"))


def test_records_sent_before_the_keeper_stops_are_written(client: Any, run_name: str, tmp_path: Path) -> None:
    record, prefix = play_match("matrix:rps")[0], f"warren.{run_name}:"
    sender, stopping = ReplaySender(client, prefix), threading.Event()
    for number in range(100):
        sender.send(replace(record, match=f"m{number}"))
    stopping.set()
    ReplayKeeper(client, prefix, tmp_path, 1 << 20).run(stopping)
    assert [match.match for match in read(tmp_path)] == [f"m{number}" for number in range(100)]
    assert client.xlen(stream_key(prefix)) == 0


def test_waiting_records_survive_a_full_disk_and_an_absent_redis(
    client: Any, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record, prefix = play_match("matrix:rps")[0], f"warren.{run_name}:"
    ReplaySender(client, prefix).send(record)
    monkeypatch.setattr(sending, "AGAIN_AFTER", 0.01)
    stopping = threading.Event()
    written, failures = ReplayWriter.append, [OSError(28, "No space left on device"), redis.ConnectionError("away")]

    def append(self: ReplayWriter, records: list[bytes]) -> None:
        if failures:
            raise failures.pop()
        written(self, records)
        stopping.set()

    monkeypatch.setattr(ReplayWriter, "append", append)
    ReplayKeeper(client, prefix, tmp_path, 1 << 20).run(stopping)
    assert [match.match for match in read(tmp_path)] == [record.match]
    assert "No space left" in caplog.text and "away" in caplog.text


def test_a_stream_that_nobody_reads_is_bounded_and_so_is_a_record(
    client: Any, run_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record, prefix = play_match("matrix:rps")[0], f"warren.{run_name}:"
    monkeypatch.setattr(sending, "WAITING", 5)
    sender = ReplaySender(client, prefix)
    for number in range(20):
        sender.send(replace(record, match=f"m{number}"))
    assert client.xlen(stream_key(prefix)) == 5
    assert caplog.text.count("records of matches are lost: 5 wait") == 1
    monkeypatch.setattr(sending, "LARGEST", 10)
    sender.send(replace(record, match="large"))
    assert "match large is not recorded" in caplog.text and client.xlen(stream_key(prefix)) == 5


def test_records_that_a_killed_run_left_are_written_before_the_next_begins(
    client: Any, run_name: str, tmp_path: Path
) -> None:
    record, killed = play_match("matrix:rps")[0], f"warren.{run_name}:"
    config = Config(folder=str(tmp_path), project="p", trial="t")
    unsaved = Unsaved(league_folder(config))
    unsaved.begin(client, killed)
    for number in range(100):
        ReplaySender(client, killed).send(replace(record, match=f"m{number}"))
    session: Any = SimpleNamespace(redis=client, topology=Topology(f"{run_name}-next"))
    take_over_earlier(
        config, session, LeagueConfig.from_dict({"env": "matrix:rps", "players": {"a": {"kind": "pfsp"}}})
    )
    assert [match.match for match in read(run_folder(config) / FOLDER)] == [f"m{number}" for number in range(100)]
    assert list(client.scan_iter(f"{killed}*")) == []
    assert unsaved.prefixes == [session.topology.key_prefix]
