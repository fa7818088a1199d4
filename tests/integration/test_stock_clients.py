"""Tests of a stock Celery client with Warren's serializer alone: its calls end like any task, on both brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError
from support.calling import Calling
from support.waiting import PATIENCE, until

from tasks import codec
from workers.servers import Servers


@pytest.fixture(params=["rabbitmq", "embedded"])
def run(request: pytest.FixtureRequest, run_name: str, tmp_path: Path) -> Iterator[Calling]:
    servers: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    calling = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        calling.start(1)
        yield calling
    finally:
        calling.close()


class Stock:
    """Stock Celery's client."""

    def __init__(self, run: Calling) -> None:
        codec.register()
        self.topology = run.topology
        self.app = Celery("stock", broker=run.broker_url, backend=run.redis_url, set_as_current=False)
        prefix = run.topology.key_prefix
        self.app.conf.update(
            task_serializer="warren", result_serializer="warren-stored",
            accept_content=["warren", "warren-stored", "json"],
            result_backend_transport_options={"global_keyprefix": prefix},
        )  # fmt: skip
        if run.broker_url.startswith("redis"):
            self.app.conf.broker_transport_options = {"global_keyprefix": prefix}

    def signature(self, name: str, *args: Any, **options: Any) -> Any:
        address = {"exchange": self.topology.service.name, "routing_key": name}
        return self.app.signature(name, args=args).set(**address, **options)

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        return self.signature(name, *args, **options).apply_async()


@pytest.fixture
def stock(run: Calling) -> Stock:
    return Stock(run)


def test_calls_chains_groups_and_chords_of_a_stock_client_end(stock):
    assert stock.call("actor.add", 1, 2).get(timeout=PATIENCE) == 3
    add = stock.signature("actor.add", 1)
    assert chain(add, stock.signature("actor.add")).apply_async().get(timeout=PATIENCE) == 3
    assert group([add, add]).apply_async().get(timeout=PATIENCE) == [2, 2]
    assert chord([add, add], stock.signature("actor.total")).apply_async().get(timeout=PATIENCE) == 4


def test_a_call_that_expired_in_a_busy_worker_is_revoked_and_ends_its_chord(run, stock):
    busy = stock.call("actor.hold", "busy")
    until(lambda: run.ran("busy") == 1)
    late = stock.call("actor.add", 1, expires=0.5)
    in_chord = chord(
        [stock.signature("actor.add", 1), stock.signature("actor.add", 2, expires=0.5)], stock.signature("actor.total")
    ).apply_async()
    time.sleep(0.6)  # the calls' own time
    run.release("busy")
    with pytest.raises(TaskRevokedError, match="expired"):
        late.get(timeout=PATIENCE)
    with pytest.raises(Exception, match=r"(?i)revoked|expired"):
        in_chord.get(timeout=PATIENCE)
    assert busy.get(timeout=PATIENCE) and late.state == "REVOKED"


def test_a_call_that_was_revoked_is_revoked(run, stock):
    busy = stock.call("actor.hold", "busy")
    until(lambda: run.ran("busy") == 1)
    late = stock.call("actor.ran", "revoked")
    with run.app.connection_for_write() as own:  # a connection of the app's pool may have died since its last use
        until(lambda: run.app.control.revoke(late.id, reply=True, timeout=1.0, connection=own))  # the worker knows
    run.release("busy")
    with pytest.raises(TaskRevokedError, match="revoked"):
        late.get(timeout=PATIENCE)
    assert busy.get(timeout=PATIENCE) and run.ran("revoked") == 0


def test_a_call_with_a_countdown_runs_when_it_is_due(run, stock):
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    later = stock.call("actor.ran", "later", countdown=1.5)
    assert stock.call("actor.ran", "now").get(timeout=PATIENCE) == 1
    assert later.get(timeout=PATIENCE) == 1 and datetime.now(UTC) >= due


def test_a_call_that_is_due_in_an_hour_fails_with_the_reason(run, stock):
    far = stock.call("actor.ran", "far", countdown=3600)
    with pytest.raises(Exception, match=r"its eta is 3\d\d\d s away, and a worker holds a call for \d+ s at most"):
        far.get(timeout=PATIENCE)
    assert run.ran("far") == 0


@pytest.mark.parametrize("how", ["reject", "surrogate", "cancelled", "memory", "lost", "retry"])
def test_a_stock_caller_gets_whatever_a_service_raises(run, stock, how):
    failing = stock.call("actor.trouble", how)
    with pytest.raises(Exception):  # noqa: B017 of a class that Celery makes
        failing.get(timeout=PATIENCE)
    assert failing.state == "FAILURE" and run.ran(how) == 1
    assert stock.call("actor.add", 1).get(timeout=PATIENCE) == 2


def test_reject_with_requeue_runs_the_call_again(run, stock):
    assert stock.call("actor.trouble", "requeue").get(timeout=PATIENCE) == 2


def test_ignore_and_reject_with_requeue_leave_nothing_behind(run, stock):
    ignored = stock.call("actor.trouble", "ignore")
    assert stock.call("actor.add", 1).get(timeout=PATIENCE) == 2
    until(lambda: run.ran("ignore") == 1)
    assert ignored.state == "PENDING" and run.ran("ignore") == 1
