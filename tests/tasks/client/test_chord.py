"""Tests of chords on a real broker and Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.obedient import ObedientWorker
from support.waiting import PATIENCE, until

from tasks.client.chord import gather
from workers.servers import Servers


@pytest.fixture(scope="module", params=["rabbitmq", "embedded"])
def worker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObedientWorker]:
    servers: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    log = tmp_path_factory.mktemp("gather") / "worker.log"
    with ObedientWorker(f"gather-{request.param}", servers.broker_url, servers.redis_url, log) as worker:
        yield worker


def calls(worker: ObedientWorker, *orders: tuple[str, Any]) -> list[Any]:
    return [
        worker.app.signature("actor.rollout", args=order, options={"ignore_result": True, "expires": 600})
        for order in orders
    ]


def ends(worker: ObedientWorker, word: str) -> dict[str, Any]:
    return {
        "then": worker.app.signature("learner.learn", options={"ignore_result": True}),
        "on_error": worker.app.signature("learner.round_failed", args=(word,), immutable=True),
    }


def keys_without_an_end(worker: ObedientWorker) -> list[bytes]:
    client = redis.Redis.from_url(worker.app.conf.result_backend)
    return [key for key in client.scan_iter(match=f"{worker.topology.key_prefix}*") if client.ttl(key) == -1]


def test_the_results_of_all_calls_join_in_order_in_one_call(worker: ObedientWorker) -> None:
    values = [["first", 1], {"second": 2}, "third", None, 5]
    gather(worker.app, calls(worker, *(("return", value) for value in values)), **ends(worker, "no"))
    worker.noted("joined", values)
    assert [value for _, value, _ in worker.notes("joined")].count(values) == 1
    assert not worker.notes("failed")


def test_a_call_that_fails_calls_on_error_and_never_the_body(worker: ObedientWorker) -> None:
    joined = len(worker.notes("joined"))
    gather(worker.app, calls(worker, ("return", "well"), ("raise", "badly")), **ends(worker, "the round failed"))
    worker.noted("failed", "the round failed")
    assert worker.do("return", "a later task").get(timeout=PATIENCE) == "a later task"
    assert len(worker.notes("joined")) == joined


def test_keys_that_a_chord_leaves_in_redis_expire(worker: ObedientWorker) -> None:
    done = len(worker.notes("joined"))
    gather(worker.app, calls(worker, ("return", 1), ("return", 2)), **ends(worker, "no"))
    until(lambda: len(worker.notes("joined")) > done, "the join")
    # On the embedded server, the broker's bindings are keys of another database.
    assert keys_without_an_end(worker) == []


def test_a_process_that_gathers_keeps_no_subscriptions(worker: ObedientWorker) -> None:
    done = len(worker.notes("joined"))
    results = [gather(worker.app, calls(worker, ("return", 1), ("return", 2)), **ends(worker, "no")) for _ in range(5)]
    assert worker.app.backend.result_consumer.subscribed_to == set()
    until(lambda: len(worker.notes("joined")) == done + 5, "the joins")
    assert len(results) == 5


def test_failed_calls_become_dead_letters_with_the_reason(
    servers: Servers, tmp_path: Path, run_name: str, rabbitmqctl: Callable[..., list[str]]
) -> None:
    with ObedientWorker(run_name, servers.broker_url, servers.redis_url, tmp_path / "log") as worker:
        worker.do("raise", "for good", ignore_result=True)
        worker.do("return", "well", ignore_result=True)
        worker.noted("acknowledged")
        queue = worker.topology.dead_queue("actor")
        with worker.app.connection_for_read() as connection:
            message = until(lambda: queue(connection.default_channel).get(accept=["warren"]), "a dead letter")
            assert message.headers["task"] == "actor.rollout"
            assert message.headers["x-death"][0]["reason"] == "rejected"
            assert message.decode()[0] == ("raise", "for good")
            message.ack()
            assert queue(connection.default_channel).get() is None
