"""Tests of records on disk: appended, within a bound, and whole however a writer ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.played import play_match

from workers.replays.folder import ReplayWriter, files, read


def test_the_oldest_records_go_when_their_files_reach_the_bound(tmp_path: Path) -> None:
    record, _ = play_match("matrix:rps")
    bound = 20_000
    writer = ReplayWriter(tmp_path, bound)
    for number in range(200):
        writer.append([replace(record, match=f"m{number}").to_bytes()])
        assert sum(path.stat().st_size for path in files(tmp_path)) <= bound
    kept = [match.match for match in read(tmp_path)]
    assert kept == [f"m{number}" for number in range(200 - len(kept), 200)]
    assert sum(path.stat().st_size for path in files(tmp_path)) > bound / 2


def test_a_killed_writer_loses_one_record_and_none_is_read_twice(tmp_path: Path) -> None:
    records = [replace(play_match("matrix:rps")[0], match=f"m{number}").to_bytes() for number in range(4)]
    writer = ReplayWriter(tmp_path, 1 << 20)
    writer.append(records[:2])
    writer.close()
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    ReplayWriter(tmp_path, 1 << 20).append([records[2], records[0], records[3]])
    assert [match.match for match in read(tmp_path)] == ["m0", "m2", "m3"]
