"""league.redis.store on a real Redis: each match ends once, though results come twice, late or for a changed player."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
import redis
from support.store_fixtures import assert_replayed, store_on
from support.waiting import until

from league.matchmaking.view import ModelRef
from league.redis.store import Report, Store
from league.rules.ratings import elo_update
from league.rules.settings import Settings
from league.state.periods import Periods
from warren.errors import ConfigurationError, LeagueError, MatchmakingError, PlayerError, UnknownName


@pytest.fixture
def store(redis_url: str, run_name: str) -> Store:
    """Return a league of a main agent with two snapshots and a main exploiter."""
    made = store_on(redis_url, run_name)
    made.add_player("main", "main_agent")
    made.add_player("hunter", "main_exploiter")
    made.snapshot("main", 1)
    made.snapshot("main", 2)
    return made


def test_a_match_is_issued_reported_and_counted(store: Store) -> None:
    match = store.request("main", "actor", 60.0)
    assert match.home == "main" and match.away in ("main", "main@1", "main@2")
    assert [open_match.id for open_match in store.open_matches()] == [match.id]
    assert store.report(match.id, "w") == Report("counted")
    assert store.open_matches() == []
    assert store.counters() == {"issued": 1, "counted": 1, "games": 1}
    assert_replayed(store)


def test_a_result_that_comes_twice_counts_once(store: Store) -> None:
    match = store.issue("main", "main@1", "actor", 60.0)
    assert store.report(match.id, "w") == Report("counted")
    assert store.report(match.id, "w") == Report("refused", "duplicate")
    assert store.report(match.id, "l") == Report("refused", "duplicate")
    live = assert_replayed(store)
    assert live.payoff.cells[0, 2].tolist() == [1.0, 0.0, 0.0]
    assert store.counters()["refused:duplicate"] == 2


def test_payoff_and_elo_in_redis_are_those_of_the_formulas(store: Store) -> None:
    outcomes = "w" * 10 + "l" * 10
    for outcome in outcomes:
        store.report(store.issue("main", "main@1", "actor", 60.0).id, outcome)
    live = assert_replayed(store)
    main, old = live.players["main"].slot, live.players["main@1"].slot
    view = store.view("main")
    assert view.games(main, np.array([old]))[0] == pytest.approx(18.209306, abs=5e-7)
    assert view.win_rates(main, np.array([old]))[0] == pytest.approx(0.474895, abs=5e-7)
    assert view.win_rates(old, np.array([main]))[0] == pytest.approx(1 - 0.474895, abs=5e-7)
    expected = elo_update(1200.0, 1200.0, outcomes)
    assert view.elo(np.array([main, old])).tolist() == pytest.approx(list(expected), abs=1e-9)


def test_games_of_one_match_count_as_matches_of_one_game_would(store: Store) -> None:
    store.report(store.issue("main", "main@1", "actor", 60.0).id, "wwdlwl")
    for outcome in "wwdlwl":
        store.report(store.issue("hunter", "main@2", "actor", 60.0).id, outcome)
    cells = assert_replayed(store).payoff.cells
    assert cells[0, 2].tolist() == cells[1, 3].tolist() and cells[2, 0].tolist() == cells[3, 1].tolist()
    assert store.counters()["games"] == 12


def test_self_play_stays_at_one_half_and_moves_no_rating(store: Store) -> None:
    store.report(store.issue("main", "main", "actor", 60.0).id, "wwdl")
    live = assert_replayed(store)
    assert live.win_rates(0, np.array([0]))[0] == pytest.approx(0.5) and live.ratings[0] == 1200.0


def test_rare_draws_against_itself_are_counted_as_in_memory(store: Store) -> None:
    outcomes = "d" + "w" * 139 + "d"  # 0.99^140 + 1/2 + 1/2 is rounded twice, and is not 0.99^140 + 1
    store.report(store.issue("main", "main", "actor", 60.0).id, outcomes)
    assert_replayed(store)


def test_a_request_that_comes_twice_gets_the_same_match(store: Store) -> None:
    first = store.request("main", "actor", 60.0, match="request-7")
    assert [store.request("main", "actor", 60.0, match="request-7") for _ in range(20)] == [first] * 20
    assert store.counters() == {"issued": 1}
    store.report("request-7", "w")
    with pytest.raises(LeagueError, match="'request-7' has ended"):
        store.request("main", "actor", 60.0, match="request-7")


def test_a_match_ends_with_its_lease_and_a_later_result_is_refused(store: Store) -> None:
    match = store.request("main", "actor", 0.02)
    until(lambda: store.expire() == 1)
    assert store.open_matches() == []
    assert store.report(match.id, "w") == Report("refused", "late")
    assert store.counters() == {"issued": 1, "expired": 1, "refused:late": 1}
    assert_replayed(store)


def test_a_request_ends_expired_matches(store: Store) -> None:
    store.request("main", "gone", 0.001)

    def asked_again() -> bool:
        store.request("main", "actor", 60.0)
        return store.counters().get("expired") == 1

    until(asked_again)


def test_an_actor_can_extend_its_lease(store: Store) -> None:
    match = store.request("main", "actor", 0.05)
    assert store.extend(match.id, 60.0)
    assert store.open_matches()[0].deadline > match.deadline + 50_000
    assert_replayed(store)
    store.abort(match.id)
    assert not store.extend(match.id, 60.0)


def test_an_aborted_match_ends_once_with_its_reason(store: Store) -> None:
    match = store.request("main", "actor", 60.0)
    assert store.abort(match.id, "model") == Report("aborted", "model")
    assert store.abort(match.id, "model") == Report("refused", "late")
    assert store.report(match.id, "w") == Report("refused", "late")
    assert store.counters() == {"issued": 1, "aborted": 1, "aborted:model": 1, "refused:late": 2}
    assert_replayed(store)


def test_a_result_of_an_unknown_match_is_refused_and_counted(store: Store) -> None:
    assert store.report("never-issued", "w") == Report("refused", "unknown")
    assert assert_replayed(store).counters == {"refused:unknown": 1}


def test_an_impossible_outcome_leaves_the_match_open(store: Store) -> None:
    match = store.request("main", "actor", 60.0)
    for wrong in ("", "win", "x", "w "):
        with pytest.raises(LeagueError, match="write one or more of w, d, l"):
            store.report(match.id, wrong)
    assert store.report(match.id, "d") == Report("counted")


def reset(store: Store, player: str) -> None:
    """Close a period at whose end the player is reset."""
    periods = Periods(store)
    period = periods.open(player, "learner", 60.0)
    assert periods.close(period, 5_000_000_000, 9).status == "reset"


def test_a_result_of_a_player_reset_during_the_match_is_dropped_by_default(store: Store) -> None:
    match = store.issue("hunter", "main", "actor", 60.0)
    reset(store, "hunter")
    assert store.report(match.id, "w") == Report("aborted", "reset")
    live = assert_replayed(store)
    assert live.payoff.cells.sum() == 0.0 and live.counters["aborted:reset"] == 1


def test_a_result_of_a_player_reset_during_the_match_counts_by_on_reset_count(redis_url: str, run_name: str) -> None:
    store = store_on(redis_url, run_name, Settings(on_reset="count"))
    store.add_player("main", "main_agent")
    store.add_player("hunter", "main_exploiter")
    match = store.issue("hunter", "main", "actor", 60.0)
    reset(store, "hunter")
    assert store.report(match.id, "w") == Report("counted")
    assert_replayed(store)


@pytest.mark.parametrize(("rule", "expected"), [("count", Report("counted")), ("drop", Report("aborted", "frozen"))])
def test_a_result_of_a_player_frozen_during_the_match_follows_on_frozen(
    redis_url: str, run_name: str, rule: str, expected: Report
) -> None:
    store = store_on(redis_url, run_name, Settings(on_frozen=rule))
    store.add_player("main", "self_play")
    store.add_player("other", "self_play")
    match = store.issue("main", "other", "actor", 60.0)
    store.freeze("other", ModelRef("other", 3))
    assert store.report(match.id, "w") == expected
    assert_replayed(store)
    # The setting does not concern a player that was frozen before the match began.
    assert store.report(store.issue("main", "other", "actor", 60.0).id, "w") == Report("counted")


def test_a_result_of_a_removed_player_is_dropped(store: Store) -> None:
    match = store.issue("main", "hunter", "actor", 60.0)
    store.remove("hunter")
    assert store.report(match.id, "w") == Report("aborted", "removed")
    assert_replayed(store)


def test_a_paused_player_gets_no_match_and_is_still_an_opponent(store: Store) -> None:
    store.pause("main", by="hand")
    with pytest.raises(PlayerError, match="'main' is paused"):
        store.request("main", "actor", 60.0)
    assert store.request("hunter", "actor", 60.0).away == "main"
    store.resume("main")
    store.request("main", "actor", 60.0)
    assert_replayed(store)


def test_an_opponent_that_another_worker_removed_is_not_met(store: Store, redis_url: str) -> None:
    stale = Store(redis.Redis.from_url(redis_url), store.prefix, seed=1)
    stale.request("main", "actor", 60.0)
    store.remove("main@1")
    store.remove("main@2")
    assert {stale.request("main", "actor", 60.0).away for _ in range(20)} == {"main"}


def test_many_matches_are_asked_for_and_reported_at_once(store: Store) -> None:
    homes = ["main", "hunter"] * 8
    matches = store.request_many(homes, "actor", 60.0)
    assert [match.home for match in matches] == homes and len({match.id for match in matches}) == 16
    reports = store.report_many([(match.id, "w") for match in [*matches, matches[0]]])
    assert reports == [Report("counted")] * 16 + [Report("refused", "duplicate")]
    with pytest.raises(LeagueError, match="outcomes 'x'"):
        store.report_many([("a", "w"), ("b", "x")])
    assert store.report_many([]) == [] and store.request_many([], "actor", 60.0) == []
    assert assert_replayed(store).counters == {"issued": 16, "counted": 16, "games": 16, "refused:duplicate": 1}


def test_repeated_requests_of_many_matches_get_the_same_ones(store: Store) -> None:
    first = store.request_many(["main", "hunter"], "actor", 60.0, ["one", "two"])
    assert store.request_many(["main", "hunter"], "actor", 60.0, ["one", "two"]) == first
    assert store.request("main", "actor", 60.0, match="one") == first[0]
    assert store.counters() == {"issued": 2}


def test_a_worker_follows_a_league_that_was_created_anew(store: Store) -> None:
    store.request("main", "actor", 60.0)
    store.redis.delete(*store.redis.keys(f"{store.prefix}*"))
    store.create()
    store.add_player("other", "self_play")
    assert store.request("other", "actor", 60.0).away == "other"
    with pytest.raises(PlayerError, match="'main' does not exist"):
        store.request("main", "actor", 60.0)


@pytest.mark.parametrize("later", ["nothing", "another player", "the same player", "two players"])
def test_a_worker_forgets_a_change_that_a_crash_of_redis_undid(store: Store, redis_url: str, later: str) -> None:
    kept = {key: store.redis.dump(key) for key in store.redis.keys(f"{store.prefix}*")}
    store.change("hunter", config={"patience": 1})
    worker = Store(redis.Redis.from_url(redis_url), store.prefix, seed=1)
    assert worker.view().roster["hunter"].config == {"patience": 1}
    store.redis.delete(*store.redis.keys(f"{store.prefix}*"))
    for key, value in kept.items():
        store.redis.restore(key, 0, value)
    other = Store(redis.Redis.from_url(redis_url), store.prefix, seed=2)
    if later == "the same player":
        other.change("hunter", config={"patience": 2})
    elif later != "nothing":
        other.snapshot("main", 3)
    if later == "two players":
        other.pause("main")
    assert list(worker.view().roster) == list(Store(other.redis, store.prefix).view().roster)


def test_many_matches_at_once_meet_no_opponent_that_was_removed_meanwhile(store: Store, redis_url: str) -> None:
    lagging = Store(redis.Redis.from_url(redis_url), store.prefix, seed=1, view_age=3600.0)
    lagging.request("main", "actor", 60.0)
    store.remove("main@1")
    store.remove("main@2")
    assert {match.away for match in lagging.request_many(["main"] * 20, "actor", 60.0)} == {"main"}
    assert_replayed(store)


def test_an_old_view_issues_no_impossible_match(store: Store, redis_url: str) -> None:
    lagging = Store(redis.Redis.from_url(redis_url), store.prefix, seed=1, view_age=3600.0)
    assert lagging.request("hunter", "actor", 60.0).away == "main"
    store.snapshot("main", 3)
    store.remove("main")
    with pytest.raises(MatchmakingError):
        lagging.request("hunter", "actor", 60.0)
    store.pause("hunter")
    with pytest.raises(PlayerError, match="'hunter' is paused"):
        lagging.issue("hunter", "main@1", "actor", 60.0)


@pytest.mark.parametrize("players", [3, 60])
def test_a_match_takes_as_many_round_trips_in_a_large_league_as_in_a_small_one(
    redis_url: str, run_name: str, players: int
) -> None:
    store = store_on(redis_url, run_name)
    store.add_player("main", "main_agent")
    for version in range(players):
        store.snapshot("main", version)
    store.report(store.request("main", "actor", 60.0).id, "w")
    trips: list[int] = []
    for step in (lambda: store.request("main", "actor", 60.0, match="m"), lambda: store.report("m", "w")):
        before = store.redis.info("stats")["total_reads_processed"]
        step()
        trips.append(store.redis.info("stats")["total_reads_processed"] - before - 1)
    assert trips == [2, 1]


def test_an_unknown_player_is_named_with_similar_names(store: Store) -> None:
    with pytest.raises(PlayerError, match="'mian' does not exist; did you mean main"):
        store.request("mian", "actor", 60.0)
    with pytest.raises(PlayerError, match="'main' and 'nobody' cannot play"):
        store.issue("main", "nobody", "actor", 60.0)
    store.remove("main")
    with pytest.raises(MatchmakingError, match="needs a main agent"):
        store.request("hunter", "actor", 60.0)


def test_wrong_players_are_refused_before_anything_is_stored(store: Store) -> None:
    before = store.redis.xlen(f"{store.prefix}events")
    with pytest.raises(UnknownName, match="did you mean main_agent"):
        store.add_player("x", "main_agnt")
    with pytest.raises(ConfigurationError, match="did you mean self_share"):
        store.add_player("x", "pfsp", {"self_shar": 0.5})
    with pytest.raises(PlayerError, match="main@1"):
        store.add_player("main@1", "pfsp")
    with pytest.raises(PlayerError, match="has no model"):
        store.add_player("x", "pfsp", frozen=True)
    with pytest.raises(LeagueError, match="slot of a player cannot be set"):
        store.change("main", slot=3)
    assert store.add_player("main", "self_play") is False
    assert store.redis.xlen(f"{store.prefix}events") == before


def test_create_joins_an_existing_league_and_refuses_other_settings(store: Store) -> None:
    assert store.create() == Settings()
    with pytest.raises(ConfigurationError) as caught:
        store.create(Settings(decay=0.9, elo_k=32.0))
    assert len(caught.value.problems) == 2 and "decay: asked for 0.9" in str(caught.value)


def test_many_workers_and_actors_count_every_match_once(store: Store, redis_url: str) -> None:
    """Four league workers; results come up to three times, never, or after an abort, and a snapshot joins meanwhile."""
    stores = [Store(redis.Redis.from_url(redis_url), store.prefix, seed=worker) for worker in range(4)]
    answers: list[Report] = []
    errors: list[BaseException] = []

    def act(worker: int) -> None:
        rng, mine = np.random.default_rng(worker), stores[worker]
        try:
            for number in range(150):
                home = ("main", "hunter")[int(rng.integers(2))]
                lost = rng.random() < 0.1
                match = mine.request(home, f"actor-{worker}", 0.001 if lost else 60.0)
                if worker == 0 and number == 75:
                    mine.snapshot("main", 3)
                if lost:
                    continue
                if rng.random() < 0.1:
                    answers.append(mine.abort(match.id))
                for _ in range(int(rng.integers(1, 4))):
                    answers.append(stores[int(rng.integers(4))].report(match.id, str(rng.choice(list("wdl")))))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=act, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    until(lambda: store.expire() == 0 and not store.open_matches())
    counters = store.counters()
    statuses = Counter(answer.status for answer in answers)
    assert counters["issued"] == 600 == counters["counted"] + counters["expired"] + counters["aborted"]
    assert statuses["counted"] == counters["counted"] == counters["games"] > 300
    assert statuses["refused"] == counters["refused:duplicate"] + counters["refused:late"] > 100
    assert_replayed(store)


def test_an_older_roster_version_than_the_cached_one_reads_no_players(store: Store) -> None:
    older = store.view().roster.version
    store.pause("hunter")
    newer = store.view().roster
    asked: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(store.redis, name)

    store._views._rosters._redis = Counting()
    assert store._views._rosters.at(older) is newer
    assert asked == ["get"]


def test_a_trim_leaves_only_events_that_share_a_node_with_the_last(store: Store) -> None:
    events = f"{store.prefix}events"
    with store.redis.pipeline(transaction=False) as pipeline:
        for _ in range(30_000):  # Redis trims at most 10,000 per call by default
            pipeline.xadd(events, {"event": "x"})
        last = pipeline.execute()[-1]
    store.trim(last.decode(), {})
    assert store.stream_length() <= 100
