"""workers.dashboard.fold and timeline: a league at any moment, from its folder and from its stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.recorded_leagues import BEGAN, small_league, write

from league.state.fields import event_order
from league.state.league_state import Event
from league.state.replay import fold as folded
from warren.errors import LeagueError
from workers.dashboard import timeline as module
from workers.dashboard.fold import BINS, Fold, LastResults, Throughput
from workers.dashboard.timeline import Timeline


class Stream:
    """Stand-in for a stream in Redis that holds `entries`."""

    def __init__(self, entries: list[tuple[str, Event]]) -> None:
        self.entries = entries

    def holds(self, entry: str) -> bool:
        return any(entry == known for known, _ in self.entries)

    def events(self, after: str = "0", until: str = "+") -> Iterator[tuple[str, Event]]:
        return iter([one for one in self.entries if event_order(one[0]) > event_order(after)])


def state_at(entries: list[tuple[str, dict[str, str]]], moment: float):  # type: ignore[no-untyped-def]
    return folded(one for one in entries if event_order(one[0])[0] <= int(moment * 1000))


@pytest.mark.parametrize("segment", [0, 25])
def test_any_moment_is_the_fold_of_the_events_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment: int
) -> None:
    monkeypatch.setattr(module, "MARK", 7)
    entries = small_league().entries
    write(tmp_path, entries, segment)
    timeline = Timeline(tmp_path)
    assert timeline.follow() and not timeline.follow()
    for after in (3.0, 33.0, 17.0, 17.0, 1.0, 25.0, 1000.0):
        found = timeline.at(BEGAN + after).history
        assert found.state.differences(state_at(entries, BEGAN + after)) == []
        assert found.now <= BEGAN + after
    assert timeline.now().history.state.differences(folded(entries)) == []


def test_only_whole_lines_are_read_while_a_file_grows(tmp_path: Path) -> None:
    entries = small_league().entries
    write(tmp_path, entries[:-2])
    timeline = Timeline(tmp_path)
    timeline.follow()
    lines = [json.dumps({"id": entry, "fields": event}) + "\n" for entry, event in entries[-2:]]
    with timeline.path.open("a") as file:
        file.write(lines[0] + lines[1][:20])
    assert timeline.follow() and timeline.now().history.last_event == entries[-2][0]
    with timeline.path.open("a") as file:
        file.write(lines[1][20:])
    assert timeline.follow() and timeline.now().history.state.differences(folded(entries)) == []


def test_following_goes_on_in_the_next_file(tmp_path: Path) -> None:
    entries = small_league().entries
    write(tmp_path, entries[:50])
    timeline = Timeline(tmp_path)
    timeline.follow()
    write(tmp_path, entries, segment=50)
    assert timeline.follow() and timeline.now().history.state.differences(folded(entries)) == []
    assert timeline.now().events == len(entries)


def test_the_stream_continues_the_folder_and_its_moments_are_known(tmp_path: Path) -> None:
    entries = small_league().entries
    write(tmp_path, entries[:20])
    timeline = Timeline(tmp_path)
    assert timeline.follow(Stream(entries[10:]))
    assert timeline.now().history.state.differences(folded(entries)) == []
    moment = timeline.now().history.now - 4.0
    assert timeline.at(moment).history.state.differences(state_at(entries, moment)) == []
    write(tmp_path, entries)
    assert not timeline.follow(), "events from Redis are not read again from the file"


def test_events_that_a_crash_of_redis_lost_are_dropped(tmp_path: Path) -> None:
    entries = small_league().entries
    timeline = Timeline(tmp_path)
    timeline.follow(Stream(entries))
    timeline.follow(Stream(entries[:-3]))
    assert timeline.now().history.state.differences(folded(entries[:-3])) == []


@pytest.mark.parametrize("line", ['{"id": "1-0"}', "null", "3", '{"id": "1-0", "fields": []}'])
def test_a_line_that_is_no_event_is_one_clear_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "league.jsonl").write_text(f"{line}\n")
    with pytest.raises(LeagueError, match="a line is not an event"):
        Timeline(tmp_path).follow()


def test_a_copy_of_a_fold_is_independent() -> None:
    entries = small_league().entries
    fold = Fold()
    fold.take(entries[:20])
    mark = fold.copy()
    fold.take(entries[20:])
    assert mark.history.state.differences(folded(entries[:20])) == []
    mark.take(entries[20:])
    assert mark.history.state.differences(fold.history.state) == []
    assert (mark.actors, mark.throughput.matches) == (fold.actors, fold.throughput.matches)


def test_changes_name_cells_of_ended_matches_and_are_reported_once() -> None:
    entries = small_league().entries
    fold = Fold()
    fold.take(entries[:-2])
    assert fold.changes().anew
    fold.take(entries[-2:])
    changes = fold.changes()
    assert not changes.anew and len(changes.pairs) == 1
    assert set(changes.slots) == set(changes.pairs[0]) and fold.changes().pairs == []


def test_the_last_result_is_seen_from_either_side() -> None:
    last = LastResults()
    last.record(0, 3, 10.0, "wwdl")
    assert last.between(0, 3) == (10.0, 2, 1, 1) and last.between(3, 0) == (10.0, 1, 1, 2)
    last.record(3, 0, 11.0, "w")
    assert last.between(0, 3) == (11.0, 0, 0, 1) and last.between(1, 9) is None
    last.clear(3)
    assert last.between(0, 3) is None


def test_bins_double_in_width_and_lose_no_match() -> None:
    throughput = Throughput()
    for second in range(5000):
        throughput.add(100.0 + second, 3)
    assert len(throughput.matches) <= BINS and throughput.width == 16.0
    assert (sum(throughput.matches), sum(throughput.games)) == (5000, 15000)
