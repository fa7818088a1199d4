"""PSRO players on Redis: their opponents follow the returns that evaluators add, at two round trips per request."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest
import redis
from support.store_fixtures import store_on
from support.waiting import until

from league.matchmaking import distribution, kind_of
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store

KINDS = pytest.mark.parametrize("kind", ["psro", "pbt_psro"])


def league_on(redis_url: str, run_name: str, kind: str, config: dict[str, object] | None = None) -> Store:
    """Return a league of a learning player and three snapshots of it."""
    store = store_on(redis_url, run_name)
    store.add_player("main", kind, config)
    for version in range(3):
        store.snapshot("main", version)
    return store


def evaluate(returns: SharedReturns, edges: dict[tuple[int, int], float]) -> None:
    """Add an evaluator's games: (one, other) -> what `one` gains from `other` in either seat; nothing from itself."""
    for (one, other), edge in edges.items():
        for first, second, mean in ((one, other, edge), (other, one, -edge), (one, one, 0.0), (other, other, 0.0)):
            returns.record(first, second, [mean - 1.0, mean + 1.0])


def shares(store: Store) -> list[float]:
    """Return the probability of each snapshot to be met next."""
    view = store.view("main")
    me = view.roster["main"]
    found: list[float] = distribution(kind_of(me.kind, me.config), view, me)[1:].tolist()
    return found


@KINDS
def test_opponents_follow_the_returns_that_evaluators_add(redis_url: str, run_name: str, kind: str) -> None:
    store = league_on(redis_url, run_name, kind, {"refresh": 1})
    evaluator = SharedReturns(store.redis, store.prefix)
    assert shares(store) == pytest.approx([1 / 3] * 3)
    evaluate(evaluator, {(1, 2): 0.5, (2, 3): 0.25, (3, 1): 0.25})  # each beats the next
    assert shares(store) == pytest.approx([0.25, 0.25, 0.5])
    evaluate(evaluator, dict.fromkeys([(3, 1), (3, 2)], 4.0))
    assert shares(store) == pytest.approx([0.0, 0.0, 1.0])
    issued = Counter(store.request("main", "actor", 60.0).away for _ in range(20))
    assert issued == {"main@2": 20}


def test_a_running_league_worker_follows_returns_added_elsewhere(redis_url: str, run_name: str) -> None:
    store = league_on(redis_url, run_name, "psro", {"refresh": 1})
    store = Store(store.redis, store.prefix, view_age=0.05)
    stopping, met = threading.Event(), Counter[str]()

    def ask() -> None:
        while not stopping.is_set():
            for match in store.request_many(["main"] * 8, "actor", 60.0):
                met[match.away] += 1

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        until(lambda: len(met) == 3)
        elsewhere = SharedReturns(redis.Redis.from_url(redis_url), store.prefix)
        evaluate(elsewhere, {(2, 1): 1.0, (2, 3): 1.0, (1, 3): 1.0})

        def only_the_second() -> bool:
            before = met.copy()
            until(lambda: (met - before).total() >= 24)
            return set(met - before) == {"main@1"}

        until(only_the_second)
    finally:
        stopping.set()
        asking.join()


@KINDS
def test_a_request_with_a_solved_mixture_sends_two_pipelines(redis_url: str, run_name: str, kind: str) -> None:
    store = league_on(redis_url, run_name, kind)
    evaluator = SharedReturns(store.redis, store.prefix)
    evaluate(evaluator, {(1, 2): 0.5, (2, 3): 0.5, (3, 1): 0.5})
    store.request("main", "actor", 60.0)
    evaluator.record(1, 2, np.ones(4))  # fewer additions than `refresh`: the mixture stays
    sent: list[str] = []
    with store.redis.monitor() as monitor:
        store.request("main", "actor", 60.0)
        store.redis.echo("over")
        for command in monitor.listen():
            if command["command"] == "ECHO over":
                break
            if store.prefix in command["command"] and command["client_type"] != "lua":
                sent.append(command["command"].split(" ")[0])
    pipelines = ["EXISTS", "GET", "HGET", "HGET", "GET", "GET"], ["EVALSHA", "EVALSHA"]
    assert sent == [*pipelines[0], *pipelines[1]]


def test_returns_that_a_crash_of_redis_lost_no_longer_count(redis_url: str, run_name: str) -> None:
    store = league_on(redis_url, run_name, "psro", {"refresh": 1})
    evaluate(SharedReturns(store.redis, store.prefix), {(3, 1): 1.0, (3, 2): 1.0, (2, 1): 1.0})
    assert shares(store) == pytest.approx([0.0, 0.0, 1.0])
    store.redis.delete(*store.redis.keys(f"{store.prefix}returns*"))
    assert shares(store) == pytest.approx([1 / 3] * 3)
