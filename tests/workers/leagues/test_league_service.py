"""The league's services, called as their worker calls them: batches on a real Redis."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import torch

from agents import build_algorithm, checkpoints
from league.matchmaking.view import NEWEST, ModelRef
from league.models.pool import Pool
from league.redis.store import Store
from warren.errors import LeagueError, PlayerError, PlayerUnavailable, PoolError, RemoteFailure
from workers.config.league import LeagueConfig
from workers.leagues import client as client_module
from workers.leagues import service as league_module
from workers.leagues.client import LeagueClient, refused
from workers.leagues.service import LeagueService, keep
from workers.leagues.wire import invitation_from_wire, outcome_from_wire, period_from_wire
from workers.runtime.league_policies import LeaguePolicies


@pytest.fixture
def league(redis_url: str, run_name: str) -> Iterator[LeagueService]:
    client = redis.Redis.from_url(redis_url)
    prefix = f"warren.{run_name}:"
    store = Store(client, f"{prefix}league:", seed=3, view_age=0.1)
    store.create()
    for name, kind in (("main", "main_agent"), ("hunter", "main_exploiter"), ("idle", "pfsp")):
        store.add_player(name, kind)
    store.snapshot("main", 0)
    yield LeagueService(store, Pool(client, prefix))
    for key in client.scan_iter(f"{prefix}*"):
        client.delete(key)


def test_a_batch_of_requests_is_answered_though_one_of_its_players_is_paused(league: LeagueService) -> None:
    league.store.pause("idle")
    homes = ("main", "idle", "hunter", "nobody")
    answers = league.request([(home, "actor", 60.0, f"m-{home}") for home in homes])
    assert isinstance(answers[1], PlayerUnavailable)
    assert isinstance(answers[3], PlayerError)
    for home, answer in (("main", answers[0]), ("hunter", answers[2])):
        assert invitation_from_wire(answer).match.home == home
    assert league.store.counters()["issued"] == 2


def test_a_repeated_request_gets_the_same_match(league: LeagueService) -> None:
    (first,) = league.request([("main", "actor", 60.0, "m")])
    (second,) = league.request([("main", "actor", 60.0, "m")])
    one, other = invitation_from_wire(first), invitation_from_wire(second)
    assert (one.match.id, one.match.away, one.model) == (other.match.id, other.match.away, other.model)


def test_the_model_of_a_frozen_opponent_comes_with_the_match(league: LeagueService) -> None:
    invitations = [invitation_from_wire(league.request([("main", "a", 60.0, f"m{i}")])[0]) for i in range(40)]
    models = {(found.match.away, found.model) for found in invitations}
    assert ("main@0", ModelRef("main", 0)) in models
    assert ("main", None) in models  # itself, with its newest weights


def test_a_wrong_result_fails_alone(league: LeagueService) -> None:
    league.request([("main", "a", 60.0, "m1"), ("main", "b", 60.0, "m2")])
    answers = league.report([("m1", "wwd", "a"), ("m2", "x", "b"), ("m3", "w", "a"), ("m1", "l", "a")])
    assert answers[0] == ["counted", ""]
    assert isinstance(answers[1], LeagueError)
    assert answers[2][0] == answers[3][0] == "refused"
    assert league.store.counters()["games"] == 3


def test_a_learning_period_travels_both_ways(league: LeagueService) -> None:
    period, kind = period_from_wire(league.open_period("main", "learner-main", 60.0))
    assert (period.player, period.number, period.model, kind) == ("main", 1, None, "main_agent")
    assert league.progress("main", period.number, "learner-main", 500, 60.0) == "on"
    league.store.pause("main")
    assert league.progress("main", period.number, "learner-main", 600, 60.0) == "paused"
    league.pool.put("main", 7, 700, b"weights")
    outcome = outcome_from_wire(league.close_period("main", period.number, "learner-main", 700, 7))
    assert (outcome.status, outcome.start) == ("closed", ModelRef("main", 7))
    with pytest.raises(PlayerUnavailable):
        league.open_period("main", "learner-main", 60.0)


def test_weights_are_frozen_only_if_they_become_a_snapshot(league: LeagueService) -> None:
    league.store.change("main", config={"checkpoint_min_steps": 1000, "checkpoint_max_steps": 1000})
    for version, steps in ((1, 500), (2, 1500), (3, 2000)):
        league.pool.put("main", version, steps, b"weights")
        period, _ = period_from_wire(league.open_period("main", "learner-main", 60.0))
        outcome = outcome_from_wire(league.close_period("main", period.number, "learner-main", steps, version))
        assert outcome.decision.snapshot == (version == 2)
    assert {info.version: info.frozen for info in league.pool.models()} == {2: True, 3: False} | {1: False}
    again = outcome_from_wire(league.close_period("main", 3, "learner-main", 2000, 3))
    assert again.status == "again" and again.decision == outcome.decision


def test_a_refusal_of_the_league_is_raised_as_its_own_error() -> None:
    refusal = refused(RemoteFailure("league.request", "warren.errors.PlayerUnavailable", "player 'main' is paused"))
    assert type(refusal) is PlayerUnavailable
    assert str(refusal) == "player 'main' is paused"
    assert refused(RemoteFailure("league.request", "elsewhere.PlayerUnavailable", "of another module")) is None


def test_a_league_that_is_not_back_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "AGAIN_AFTER", 0.01)
    absent = RemoteFailure("league.abort", "warren.errors.LeagueAbsent", "Redis holds no league that is ready")
    answers: list[Any] = [absent, absent, ["aborted", "actor"]]

    def call(*_: Any, **__: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = LeagueClient.__new__(LeagueClient)
    vars(client).update(holder="a", _stopping=threading.Event(), _patience=60.0, _solver=SimpleNamespace(call=call))
    assert client._ask("league.abort", "m", "a") == ["aborted", "actor"]


@pytest.mark.parametrize("kind", ["redis.exceptions.ConnectionError", "RuntimeError", "warren.errors.BrokerError"])
def test_other_failures_are_not_taken_for_refusals(kind: str) -> None:
    assert refused(RemoteFailure("league.request", kind, "away")) is None


@pytest.mark.parametrize("error", [OSError("disk full"), PoolError("damaged"), KeyError("bug"), redis.RedisError()])
def test_the_thread_that_keeps_the_folder_survives_any_error(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(league_module, "AGAIN_AFTER", 0.01)
    tries = []

    def run(stopping: threading.Event) -> None:
        tries.append(stopping)
        if len(tries) < 3:
            raise error

    keeper: Any = SimpleNamespace(run=run)
    keep(keeper, threading.Event())
    assert len(tries) == 3


@pytest.mark.parametrize("mended", [True, False])
def test_a_keeper_that_is_stopped_amid_a_failure_tries_the_last_snapshot_once(mended: bool) -> None:
    stopping, ends = threading.Event(), list[bool]()

    def run(told: threading.Event) -> None:
        ends.append(told.is_set())
        stopping.set()
        if len(ends) == 1 or not mended:
            raise redis.ConnectionError("away")

    keeper: Any = SimpleNamespace(run=run)
    keep(keeper, stopping)
    assert ends == [False, True]


def test_a_league_begins_with_the_initial_models_of_its_players(league: LeagueService, tmp_path: Path) -> None:
    given: dict[str, Any] = {"env": "matrix:rps", "network": {"hidden_sizes": []}, "players": {}}
    policy = LeaguePolicies(LeagueConfig.from_dict({**given, "players": {"a": {"kind": "pfsp"}}})).new("a", 5)
    checkpoints.save(tmp_path / "checkpoints", "1", policy, build_algorithm("ppo", {}, policy, 1), {"network": {}})
    given["players"] = {
        "student": {"kind": "pfsp", "initial": str(tmp_path)},
        "later": {"kind": "pfsp", "initial": "main@12"},
        "following": {"kind": "pfsp", "initial": "student"},
    }
    module_league = LeagueConfig.from_dict(given)
    for _ in range(2):  # a second call changes nothing
        league_module.begin(league.store, league.pool, module_league, restore=None)
    initial = {name: league.store.player(name).initial for name in given["players"]}
    assert initial == {
        "student": ModelRef("student-initial", 0),
        "later": ModelRef("main", 12),
        "following": ModelRef("student", NEWEST),
    }
    found, _ = checkpoints.weights_from_bytes(league.pool.get("student-initial", 0).data)
    assert all(torch.equal(tensor, found[name]) for name, tensor in policy.state_dict().items())
    info = league.pool.info(ModelRef("student-initial", 0))
    assert info is not None and info.frozen
