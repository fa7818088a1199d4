"""league.state.history: a league's past, folded from its stream."""

from __future__ import annotations

import numpy as np
from support.store_fixtures import folded, store_on

from league.matchmaking.view import ModelRef
from league.rules.settings import Settings
from league.state.history import POINTS, History, Restart, Series, Snapshot
from league.state.in_memory import MemoryLeague
from league.state.periods import Periods

SOON = {"checkpoint_min_steps": 10, "checkpoint_max_steps": 10}


class Recorded:
    """A league in memory whose clock is set by hand; `history` follows it event by event."""

    def __init__(self) -> None:
        self.history, self.clock, self.number = History(), 1_700_000_000.0, 0
        self.entries: list[tuple[str, dict[str, str]]] = []
        self.league = MemoryLeague(Settings(), 0, self.happened)

    def happened(self, event) -> None:  # type: ignore[no-untyped-def]
        self.number += 1
        self.entries.append((f"{round(self.clock * 1000)}-{self.number}", dict(event)))
        self.history.take(self.entries[-1:])


def test_ratings_are_those_of_each_moment_and_jump_at_a_reset() -> None:
    recorded = Recorded()
    league, expected = recorded.league, []
    league.add_player("main", "main_agent")
    league.snapshot("main", 0)
    league.add_player("hunter", "main_exploiter", SOON)
    for outcome in "wwl":
        recorded.clock += 10.0
        league.report(league.request("hunter"), outcome)
        expected.append(league.state.ratings[league.state.players["hunter"].slot])
    recorded.clock += 5.0
    league.open_period("hunter")
    league.close_period("hunter", 100, 1)
    recorded.clock += 10.0
    league.report(league.request("hunter"), "l")
    expected += [float("nan"), 1200.0, league.state.ratings[2]]

    history = recorded.history
    times, values = history.ratings["hunter"].points()
    assert np.array_equal(values, [1200.0, *expected], equal_nan=True)
    assert list(times - history.began) == [0.0, 10.0, 20.0, 30.0, 30.0, 35.0, 45.0]
    assert (history.now - history.began, history.state.differences(league.state)) == (45.0, [])
    assert history.snapshots == [
        Snapshot(history.began, "main@0", "main"),
        Snapshot(history.began + 35.0, "hunter@1", "hunter"),
    ]
    assert history.restarts == [Restart(history.began + 35.0, "hunter", "")]
    assert set(history.ratings) == {"main", "hunter"}


def test_a_copy_is_recorded_with_its_source() -> None:
    recorded = Recorded()
    for name in ("weak", "strong"):
        recorded.league.add_player(name, "pbt_elo", {"exploit_below": 0.5})
    for _ in range(30):
        match = recorded.league.request("weak")
        recorded.league.report(match, "l" if match.away == "strong" else "d")
    recorded.league.open_period("weak")
    recorded.league.close_period("weak", 100, 1, lambda player: ModelRef(player, 1))
    assert recorded.history.restarts == [Restart(recorded.clock, "weak", "strong")]
    _, values = recorded.history.ratings["weak"].points()
    assert values[-1] == recorded.history.ratings["strong"].points()[1][-1] > values[-3] and np.isnan(values[-2])


def test_a_following_history_equals_one_read_at_once(redis_url: str, run_name: str) -> None:
    store, rng = store_on(redis_url, run_name), np.random.default_rng(0)
    following = History()
    following.follow(store)
    for name in ("main", "rival", "other"):
        options = {**SOON, "reset_probability": 1.0} if name == "other" else {}
        store.add_player(name, "league_exploiter" if name == "other" else "random", options)
    for step in range(30):
        name = ("main", "rival")[step % 2]
        store.report(store.request(name, "actor", 60.0).id, str(rng.choice(list("wdl"))))
        if step % 10 == 9:
            period = Periods(store).open("other", "learner", 60.0)
            Periods(store).close(period, period.steps + 20, step)
            following.follow(store)
    store.freeze("rival", ModelRef("rival", 3))
    store.remove("other")
    following.follow(store)
    whole = History()
    whole.take(store.events())
    assert following.state.differences(store.load()) == [] == whole.state.differences(store.load())
    for name in ("began", "now", "joined", "ended", "snapshots", "restarts", "last_event"):
        assert getattr(following, name) == getattr(whole, name)
    for name, series in whole.ratings.items():
        for mine, theirs in zip(series.points(), following.ratings[name].points(), strict=True):
            assert np.array_equal(mine, theirs, equal_nan=True)
    assert set(whole.ended) == {"rival", "other"} and len(whole.restarts) == 3 == len(whole.snapshots)
    # A frozen player keeps its rating.
    learned = whole.ratings["rival"].points()[1][-1]
    store.report(store.issue("main", "rival", "actor", 60.0).id, "w")
    whole.follow(store)
    assert whole.ratings["rival"].points()[1][-1] == learned


def test_events_that_a_crash_of_redis_undid_are_undone_here_too(redis_url: str, run_name: str) -> None:
    store, history = store_on(redis_url, run_name), History()
    for name in ("main", "rival"):
        store.add_player(name, "self_play")
    for outcome in "wwd":
        store.report(store.issue("main", "rival", "actor", 60.0).id, outcome)
    history.follow(store)
    store.redis.xdel(f"{store.prefix}events", store.last_event())  # the last result was never written to disk
    history.follow(store)
    assert history.state.differences(folded(store)) == [] and len(history.state.matches) == 1
    assert len(history.ratings["main"].points()[0]) == 3


def test_a_long_series_is_thinned_evenly_and_stays_correct() -> None:
    series, gaps = Series(), 0
    for second in range(100_000):
        series.add(float(second // 3), float(second))
        if second % 30_000 == 29_999:
            series.cut()
            gaps += 1
    times, values = series.points()
    assert POINTS / 4 < len(times) <= POINTS + 1 and np.isnan(values).sum() == gaps == 3
    assert values[-1] == 99_999 and times[-1] == 33_333 and values[0] == 0.0
    known = ~np.isnan(values)
    assert (np.abs(values[known] / 3.0 - times[known]) < 1.0).all()
    assert (np.diff(times) >= 0).all() and np.diff(times[known]).max() < 4 * 33_333 / POINTS


def test_a_series_of_many_jumps_is_short_too() -> None:
    series = Series()
    for second in range(20_000):
        series.add(float(second), 1.0)
        series.cut()
        assert len(series.points()[0]) <= POINTS + 3
    assert not (np.isnan(series.points()[1])[1:] & np.isnan(series.points()[1])[:-1]).any()
