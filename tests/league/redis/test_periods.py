"""league.state.periods on a real Redis: opening, renewing and closing a player's learning period."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.store_fixtures import assert_replayed, store_on
from support.waiting import until

from league.matchmaking.view import ModelRef
from league.redis.store import Store
from league.rules.settings import Settings
from league.state.periods import Periods
from warren.errors import PlayerError, PlayerStopped

FEW = {"checkpoint_min_steps": 100, "checkpoint_max_steps": 1000}
RULES = {"learning_rate": {"rule": "perturb", "value": 0.001}, "seed": {"rule": "cyclic", "values": ["a", "b"]}}


@pytest.fixture
def store(redis_url: str, run_name: str) -> Store:
    made = store_on(redis_url, run_name)
    made.add_player("main", "main_agent", FEW, rules=RULES)
    made.add_player("hunter", "main_exploiter", FEW, initial=ModelRef("main", 0))
    return made


@pytest.fixture
def periods(store: Store) -> Periods:
    return Periods(store)


def events_of(store: Store, *names: str) -> list[dict[str, str]]:
    return [event for _, event in store.events() if event["event"] in names]


def test_a_first_period_starts_from_initial_weights_with_drawn_hyperparameters(periods: Periods) -> None:
    period = periods.open("main", "learner", 60.0)
    assert (period.number, period.model, period.steps) == (1, None, 0)
    assert period.at() == {"learning_rate": 0.001, "seed": "a"}
    assert periods.open("hunter", "other", 60.0).model == ModelRef("main", 0)


def test_the_next_period_starts_from_the_weights_of_the_last(periods: Periods, store: Store) -> None:
    outcome = periods.close(periods.open("main", "learner", 60.0), 50, 7)
    assert (outcome.status, outcome.start) == ("closed", ModelRef("main", 7))
    assert "fewer than 100" in outcome.decision.reason
    period = periods.open("main", "learner", 60.0)
    assert (period.number, period.model, period.steps) == (2, ModelRef("main", 7), 50)
    assert period.at()["seed"] == "b"
    assert_replayed(store)


def test_a_restarted_learner_resumes_its_period(periods: Periods) -> None:
    first = periods.open("main", "learner", 60.0)
    periods.progress(first, 30, 60.0)
    again = periods.open("main", "learner", 60.0)
    assert (again.number, again.steps) == (first.number, 30)


def test_another_learner_has_to_wait_for_the_lease(periods: Periods, store: Store) -> None:
    first = periods.open("main", "learner", 60.0)
    with pytest.raises(PlayerError, match="being trained by 'learner'"):
        periods.open("main", "other", 60.0)
    assert periods.progress(first, 10, 0.01) == "on"

    def taken_over() -> bool:
        try:
            return periods.open("main", "other", 60.0).number == first.number
        except PlayerError:
            return False

    until(taken_over)
    assert periods.progress(first, 20, 60.0) == "lost"
    with pytest.raises(PlayerError, match="no longer 'learner'"):
        periods.close(first, 20, 1)
    assert_replayed(store)


def test_a_period_closed_twice_is_closed_once(periods: Periods, store: Store) -> None:
    period = periods.open("main", "learner", 60.0)
    assert periods.close(period, 2000, 3).status == "closed"
    assert periods.close(period, 2000, 3).status == "again"
    assert [name for name in store.load().players if "@" in name] == ["main@3"]
    assert len(events_of(store, "period_closed")) == 1


def test_steps_never_go_back(periods: Periods, store: Store) -> None:
    period = periods.open("main", "learner", 60.0)
    periods.progress(period, 80, 60.0)
    periods.progress(period, 50, 60.0)
    assert assert_replayed(store).progress["main"].steps == 80


def test_a_main_agent_is_snapshotted_and_goes_on(periods: Periods, store: Store) -> None:
    period = periods.open("main", "learner", 60.0)
    outcome = periods.close(period, 1001, 12)
    assert outcome.decision.snapshot and not outcome.decision.reset
    live = assert_replayed(store)
    snapshot = live.players["main@12"]
    assert snapshot.frozen and snapshot.parent == "main" and snapshot.model == ModelRef("main", 12)
    assert snapshot.kind == "main_agent" and live.progress["main"].snapshot_steps == 1001
    assert live.players["main"].generation == 0
    # Steps count from the snapshot.
    again = periods.close(periods.open("main", "learner", 60.0), 1090, 13)
    assert not again.decision.snapshot


def test_a_main_exploiter_is_snapshotted_first_and_then_reset(periods: Periods, store: Store) -> None:
    for outcome in "www":
        store.report(store.issue("hunter", "main", "actor", 60.0).id, outcome)
    period = periods.open("hunter", "learner", 60.0)
    outcome = periods.close(period, 500, 40)
    assert (outcome.status, outcome.start) == ("reset", ModelRef("main", 0))
    order = [event["event"] for event in events_of(store, "period_closed", "added", "reset")]
    assert order[-3:] == ["period_closed", "added", "reset"]
    live = assert_replayed(store)
    assert live.players["hunter@40"].frozen and live.players["hunter"].generation == 1
    # Only its own record and rating begin anew.
    hunter = live.players["hunter"].slot
    assert live.payoff.cells[hunter].sum() == 0.0 and live.payoff.cells[:, hunter].sum() == 0.0
    assert live.ratings[hunter] == 1200.0 and live.ratings[0] < 1200.0
    assert periods.open("hunter", "learner", 60.0).model == ModelRef("main", 0)


def test_a_snapshot_inherits_its_parents_rating_and_optionally_its_record(redis_url: str, run_name: str) -> None:
    for inherit in (False, True):
        store = store_on(redis_url, f"{run_name}-{inherit}", Settings(snapshots_inherit=inherit))
        for name in ("main", "other", "third"):
            store.add_player(name, "self_play")
        store.report(store.issue("main", "other", "actor", 60.0).id, "wwl")
        store.report(store.issue("third", "main", "actor", 60.0).id, "d")
        snapshot = store.snapshot("main", 5)
        live = assert_replayed(store)
        assert live.ratings[snapshot.slot] == live.ratings[0] != 1200.0
        cells = live.payoff.cells
        if inherit:
            assert (cells[snapshot.slot, [1, 2]] == cells[0, [1, 2]]).all()
            assert (cells[[1, 2], snapshot.slot] == cells[[1, 2], 0]).all()
        else:
            assert cells[snapshot.slot].sum() == cells[:, snapshot.slot].sum() == 0.0


def test_a_weak_player_copies_a_strong_one_and_mutates_its_hyperparameters(redis_url: str, run_name: str) -> None:
    store = store_on(redis_url, run_name)
    periods = Periods(store)
    for name in ("weak", "strong"):
        store.add_player(name, "pbt_elo", rules=RULES)
    store.change("strong", hyperparameters={"learning_rate": 0.5, "seed": 0})
    store.report(store.issue("strong", "weak", "actor", 60.0).id, "w" * 60)
    outcome = periods.close(
        periods.open("weak", "learner", 60.0), 10, 4, weights_of=lambda player: ModelRef(player, 77)
    )
    assert (outcome.status, outcome.start) == ("exploited", ModelRef("strong", 77))
    live = assert_replayed(store)
    weak = live.players["weak"]
    assert weak.hyperparameters["learning_rate"] in (0.4, 0.6) and weak.generation == 1
    assert live.ratings[weak.slot] == live.ratings[live.players["strong"].slot] > 1200.0
    (event,) = events_of(store, "exploited")
    assert event["source"] == "strong" and json.loads(event["before"])["learning_rate"] == 0.001
    assert periods.open("weak", "learner", 60.0).model == ModelRef("strong", 77)


def test_a_player_without_weights_in_the_pool_is_not_copied(redis_url: str, run_name: str) -> None:
    store = store_on(redis_url, run_name)
    periods = Periods(store)
    for name in ("weak", "strong"):
        store.add_player(name, "pbt_elo")
    store.report(store.issue("strong", "weak", "actor", 60.0).id, "w" * 60)
    assert periods.close(periods.open("weak", "learner", 60.0), 10, 4).status == "closed"
    assert_replayed(store)


def test_frozen_and_paused_players_get_no_period_and_a_learner_is_stopped(periods: Periods, store: Store) -> None:
    period = periods.open("main", "learner", 60.0)
    store.freeze("main", ModelRef("main", 2), by="hand")
    assert periods.progress(period, 10, 60.0) == "frozen"
    with pytest.raises(PlayerError, match="'main' was frozen meanwhile"):
        periods.close(period, 5000, 3)
    assert "main@3" not in store.load().players
    with pytest.raises(PlayerStopped, match="'main' is frozen"):
        periods.open("main", "learner", 60.0)
    store.pause("hunter")
    with pytest.raises(PlayerError, match="'hunter' is paused"):
        periods.open("hunter", "learner", 60.0)
    with pytest.raises(PlayerError, match="did you mean hunter"):
        periods.open("huntr", "learner", 60.0)
    assert_replayed(store)


def test_a_frozen_player_cannot_be_snapshotted(store: Store) -> None:
    store.snapshot("main", 1)
    with pytest.raises(PlayerError, match="its own snapshot"):
        store.snapshot("main@1", 2)
    assert store.snapshot("main", 1) == store.player("main@1")


def test_random_steps_replay_to_the_same_league(redis_url: str, run_name: str) -> None:
    rng = np.random.default_rng(6)
    store = store_on(redis_url, run_name, Settings(decay=0.97, snapshots_inherit=True, elo_k=24.0))
    periods = Periods(store)
    learners = {"main": "main_agent", "hunter": "main_exploiter", "left": "league_exploiter"}
    for name, kind in learners.items():
        store.add_player(name, kind, FEW, rules=RULES)
    store.snapshot("main", 0)
    for step in range(1, 100):
        name = str(rng.choice(list(learners)))
        match = store.request(name, "actor", 3600.0)  # none ends meanwhile, on a machine however busy
        if step % 7:
            store.report(match.id, "".join(rng.choice(list("wdl"), size=int(rng.integers(1, 5)))))
        if step % 5 == 0:
            period = periods.open(name, "learner", 60.0)
            periods.close(period, period.steps + int(rng.integers(2000)), step)
        if step % 20 == 0:
            assert_replayed(store)
    live = assert_replayed(store)
    assert len(live.players) > 8 and len(live.matches) == 14


def test_a_copied_value_of_another_rule_is_replaced_by_the_initial_one(store: Store) -> None:
    rules = {
        "weak": {"rule": "perturb", "value": 0.001},
        "strong": {"rule": "schedule", "points": [[0.0, 0.003], [1.0, 0.0003]]},
    }
    for name, rule in rules.items():
        store.add_player(name, "pbt_elo", rules={"learning_rate": rule})
    for _ in range(40):
        store.report(store.issue("weak", "strong", "actor", 60.0).id, "l")
    periods = Periods(store)
    ended = periods.close(periods.open("weak", "learner", 60.0), 10, 1, weights_of=lambda name: ModelRef(name, 1))
    assert ended.status == "exploited"
    assert periods.open("weak", "learner", 60.0).at() == {"learning_rate": 0.001}
    assert_replayed(store)
