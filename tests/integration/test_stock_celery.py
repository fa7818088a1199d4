"""Tests of a client with stock Celery alone: features work or fail as the page's table says."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.calling import ROOT, Calling
from support.stock import StockProgram, service
from support.waiting import until

from workers.servers import Servers

ROWS: dict[str, str] = {}  # the page's table: feature -> behaviour
AS_EVER: list[str] = []  # features named in the page's sentence above the table

Test = Callable[..., None]


def row(feature: str, rabbitmq: str, embedded: str | None = None) -> Callable[[Test], Test]:
    """Name the row of the page's table that a test verifies; `embedded`: a difference on the embedded Redis."""
    ROWS[feature] = rabbitmq if embedded is None else f"{rabbitmq}; embedded Redis: {embedded}"
    return lambda test: test


def as_ever(feature: str) -> Callable[[Test], Test]:
    """Name a feature that works as in Celery and that a test verifies."""
    AS_EVER.append(feature)
    return lambda test: test


@pytest.fixture(scope="module", params=["rabbitmq", "embedded"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calling]:
    servers: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    name = f"test-{secrets.token_hex(6)}"
    calling = Calling(servers.broker_url, servers.redis_url, name, tmp_path_factory.mktemp("run"))
    try:
        calling.start(1)
        yield calling
    finally:
        calling.close()


@pytest.fixture(scope="module")
def stock(run: Calling) -> Iterator[StockProgram]:
    program = StockProgram(run, run.folder)
    try:
        yield program
    finally:
        program.close()


@pytest.fixture
def on_rabbitmq(run: Calling) -> bool:
    return run.broker_url.startswith("amqp")


@pytest.fixture
def busy(run: Calling, stock: StockProgram) -> Iterator[Callable[[], None]]:
    """Keep the worker busy; yield a function that ends this."""
    key = secrets.token_hex(4)
    holding = stock.call("actor.hold", key)
    until(lambda: run.ran(key) == 1)

    def end() -> None:
        run.release(key)
        assert stock.get(holding)["value"] > 0

    yield end
    run.release(key)


def add(*args: Any, **options: Any) -> dict[str, Any]:
    return service("actor.add", *args, **options)


def fails(stock: StockProgram, key: str, kind: str, text: str) -> None:
    """Check that the call failed with this error."""
    found = stock.get(key)
    assert found.get("error") == kind and text in found["text"], found


def test_the_client_can_import_nothing_of_this_project(stock):
    assert stock.do("ours") == {"imported": [], "can be": []}


@as_ever("`delay`, `apply_async`, `send_task`, `@app.task(name=...)` as a stub")
def test_a_service_is_called_by_a_stub_by_a_signature_and_by_its_name(stock):
    stock.do("delay", "stub", 1, 2, scale=3)
    stock.do("send", "named", "actor.add", [4, 5])
    assert stock.get("stub") == {"value": 9}
    assert stock.get("named") == {"value": 9}
    assert stock.get(stock.call("actor.add", 1)) == {"value": 2}


@row("a result that JSON cannot hold (an array)", "`FAILURE`: `EncodeError` names the place and the type")
def test_a_result_that_json_cannot_hold_fails_with_its_place_and_type(stock):
    fails(
        stock, stock.call("actor.infer", [0.0] * 4), "EncodeError", "cannot hold its result: it is of type numpy.int64"
    )
    fails(
        stock,
        stock.call("actor.echo", {"a": [1, {"b": 2}]}, "array"),
        "EncodeError",
        "['a'][1]['b'] is of type numpy.ndarray",
    )
    assert stock.get(stock.call("actor.echo", {"a": [1, None, "ü", 1.5]})) == {"value": {"a": [1, None, "ü", 1.5]}}


@as_ever("exceptions (`propagate`, `.traceback`)")
def test_an_exception_of_the_service_is_raised_by_get(stock):
    failed = stock.call("actor.fail", "on purpose")
    fails(stock, failed, "ValueError", "on purpose")
    assert stock.get(failed, propagate=False) == {"value": {"error": "ValueError", "text": "on purpose"}}
    found = stock.do("look", failed)
    assert found["state"] == "FAILURE" and "offered.py" in found["traceback"]


@row("a service that raises Celery's `Retry`", "`FAILURE`: it sends nothing again here; `@service(retry_on=...)` does")
def test_a_retry_that_nobody_sends_fails(stock):
    fails(stock, stock.call("actor.trouble", "retry"), "RuntimeError", "sends nothing again here")


@row("one bad call in a batch", "`FAILURE` for that call alone")
def test_a_bad_call_in_a_batch_fails_alone(stock, busy):
    results = [stock.call("actor.halves", number) for number in (2, 3, 4)]
    busy()
    assert [stock.get(results[index]) for index in (0, 2)] == [{"value": 1.0}, {"value": 2.0}]
    fails(stock, results[1], "ValueError", "3 is odd")


@as_ever("`AsyncResult(id)`, `forget`")
def test_a_result_is_found_by_its_id_until_it_is_forgotten(stock):
    done = stock.call("actor.add", 1)
    assert stock.get(done) == {"value": 2}
    stock.do("by_id", done, "again")
    assert stock.get("again") == {"value": 2} and stock.state("again") == "SUCCESS"
    stock.do("forget", done)
    stock.do("by_id", done, "gone")
    assert stock.state("gone") == "PENDING"


@as_ever("`ignore_result`")
def test_an_ignored_result_is_stored_nowhere(run, stock):
    key = secrets.token_hex(4)
    ignored = stock.call("actor.ran", key, ignore_result=True)
    assert stock.get(ignored) == {"value": None}
    until(lambda: run.ran(key) == 1)
    assert stock.get(stock.call("actor.add", 1)) == {"value": 2}  # the worker has acknowledged the first by then
    stock.do("by_id", ignored, "ignored")
    assert stock.state("ignored") == "PENDING"


@row("a service with `response=False`", "`SUCCESS` with None; `FAILURE`, and on RabbitMQ a dead letter")
def test_a_service_without_a_response_tells_a_stock_client_how_it_ended(stock):
    assert stock.get(stock.call("actor.push", secrets.token_hex(4))) == {"value": None}
    fails(stock, stock.call("actor.push_badly", "no good"), "ValueError", "no good")


@row("`expires`, and a worker holds the call", "`REVOKED`: `get` raises `TaskRevokedError`")
def test_a_call_that_expires_in_a_busy_worker_is_revoked(stock, busy):
    late = stock.call("actor.add", 1, expires=0.3)
    time.sleep(0.4)  # the call's own time
    busy()
    fails(stock, late, "TaskRevokedError", "expired")
    assert stock.state(late) == "REVOKED"


@row(
    "`expires`, and it waits in the queue",
    "`PENDING` for ever: give `get` a `timeout`",
    "`REVOKED` once a worker takes it",
)
def test_a_call_that_expires_in_the_queue_is_gone_or_revoked(run, stock, busy, on_rabbitmq):
    held = [stock.call("actor.add", number) for number in range(300)]  # more than a worker holds
    late = stock.call("actor.add", 1, expires=0.3)
    time.sleep(0.4)  # the call's own time
    busy()
    assert [stock.get(one) for one in held] == [{"value": number + 1} for number in range(300)]
    if on_rabbitmq:
        fails(stock, stock.call("actor.fail", "after it"), "ValueError", "after it")
        assert stock.state(late) == "PENDING"
    else:
        fails(stock, late, "TaskRevokedError", "expired")


@as_ever("`countdown`, `eta`")
@pytest.mark.parametrize("when", [{"countdown": 1}, *({"eta": [zone, 1]} for zone in ("naive", 5.5, -8))], ids=str)
def test_a_call_with_an_eta_runs_when_it_is_due(run, stock, when):
    key = secrets.token_hex(4)
    began = time.monotonic()
    later = stock.call("actor.ran", key, **when)
    assert stock.get(stock.call("actor.add", 1)) == {"value": 2}  # others pass
    assert stock.get(later) == {"value": 1} and time.monotonic() - began >= 0.9
    assert stock.get(stock.call("actor.add", 1, eta=[-8, -5])) == {"value": 2}


@row(
    "`countdown`, `eta` over 15 min away, or beside 32 such calls of a service; embedded Redis: over 30 s",
    "`FAILURE` at once, with the reason",
)
def test_a_call_that_is_due_too_late_fails_at_once(stock):
    far = stock.call("actor.add", 1, countdown=3600)
    found = stock.get(far)
    assert "its eta is 3600 s away, and a worker holds a call for" in found["text"] and stock.state(far) == "FAILURE"


@as_ever("`chain` (tasks of your own with `.set(queue=NAME)`)")
def test_a_chain_passes_from_services_to_own_tasks_and_back(stock):
    def double(*args: Any, **options: Any) -> dict[str, Any]:
        return service("own.double", *args, **options)

    for links, value in (
        ([add(1), add(), add(5)], 8),
        ([double(4), add()], 9),
        ([add(1), double(queue=stock.queue), add(5)], 9),
        ([{"group": [add(1), add(2)]}, service("actor.total"), add()], 6),
        ([add(1), {"group": [add(1), add(2)]}, service("actor.total")], 7),
    ):
        assert stock.get(stock.apply({"chain": links})) == {"value": value}, links


@row(
    "a `chain` that goes on nowhere (no such service, a task without its queue)",
    "`FAILURE`: `OperationalError` names the task",
)
@pytest.mark.parametrize("task", ["actor.nothing", "own.double"])
def test_a_chain_whose_next_task_no_queue_takes_fails(stock, task):
    for canvas in ({"chain": [add(1), service(task)]}, {"chain": [add(1), {"group": [service(task), add()]}]}):
        fails(stock, stock.apply(canvas), "OperationalError", f"no queue takes {task}")
    fails(stock, stock.apply(add(1, link=service(task))), "OperationalError", f"no queue takes {task}")


@row(
    "a `chain` in which one fails", "`FAILURE` for it and all that follow, groups too; those before keep their results"
)
def test_a_chain_fails_from_its_failed_member_on(stock):
    for last in (add(), {"group": [add(), add(5)]}):
        fails(stock, stock.apply({"chain": [add(1), service("actor.fail"), last]}), "ValueError", "2")


@as_ever("`group`")
def test_a_group_has_all_results_or_its_failure(stock):
    done = stock.apply({"group": [add(1), add(2), service("own.double", 2)]})
    assert stock.get(done) == {"value": [2, 3, 4]}
    stock.do("saved", done, "restored")
    assert stock.get("restored") == {"value": [2, 3, 4]}
    failing = stock.apply({"group": [add(1), service("actor.fail", "one of two")]})
    fails(stock, failing, "ValueError", "one of two")
    assert stock.get(failing, propagate=False)["value"] == [2, {"error": "ValueError", "text": "one of two"}]


@as_ever("`chord`")
def test_a_chord_joins_services_and_own_tasks(stock):
    own = service("own.double", 2)
    total = service("actor.total")
    assert stock.get(stock.apply({"chord": [add(1), add(2)], "body": total})) == {"value": 5}
    assert stock.get(stock.apply({"chord": [add(1), own, {"chain": [add(1), add()]}], "body": total})) == {"value": 9}
    body = service("own.note", queue=stock.queue)
    assert stock.get(stock.apply({"chord": [add(1), own], "body": body})) == {"value": None}
    assert [2, 4] in stock.do("noted")


@as_ever("`ChordError`")
def test_a_chord_ends_with_its_failed_or_expired_member(run, stock, busy):
    body = service("actor.ran")
    failing = stock.apply({"chord": [add(1), service("actor.fail", "member")], "body": body})
    expiring = stock.apply({"chord": [add(1), add(2, expires=0.3)], "body": body})
    time.sleep(0.4)  # the call's own time
    busy()
    for result, why in ((failing, "member"), (expiring, "expired")):
        stock.do("by_id", result, "body")  # without its parents: `get` would raise their failures first
        fails(stock, "body", "ChordError", why)


@as_ever("`link`")
def test_a_callback_is_sent_the_result(run, stock):
    key = secrets.token_hex(4)
    stock.get(stock.call("actor.echo", key, link=service("actor.ran")))
    until(lambda: run.ran(key) == 1)
    stock.get(stock.call("actor.echo", f"link {key}", link=service("own.note", queue=stock.queue)))
    until(lambda: f"link {key}" in stock.do("noted"))


@row("`link_error`", "is sent the id of the call that failed, and no more")
def test_an_error_callback_is_sent_the_id(run, stock):
    failing = [
        stock.call("actor.fail", "with a callback", link_error=service("own.note", queue=stock.queue)),
        stock.call("actor.fail", "with a callback", link_error=service("actor.add")),  # it takes two arguments
    ]
    for one in failing:
        fails(stock, one, "ValueError", "with a callback")
    until(lambda: stock.do("look", failing[0])["id"] in stock.do("noted"))


@as_ever("`revoke` of a call that has not begun")
def test_a_call_that_is_revoked_before_it_runs_does_not(run, stock, busy, on_rabbitmq):
    key = secrets.token_hex(4)
    late = stock.call("actor.ran", key)
    if not on_rabbitmq:  # a worker on Redis tells what it holds; a call that arrives after its revocation never waits
        until(lambda: "actor.ran" in {one["name"] for one in inspected(stock, "reserved")})
    assert "flagged as revoked" in str(stock.do("revoke", late))
    assert stock.state(late) == "PENDING"
    stamped = stock.call("actor.ran", key, countdown=1, stamped_headers=["job"], job=key)
    assert "flagged as revoked" in str(stock.do("revoke_stamped", job=key))
    busy()
    fails(stock, late, "TaskRevokedError", "revoked")
    fails(stock, stamped, "TaskRevokedError", "revoked")
    assert run.ran(key) == 0


@row("`revoke` while it runs, or after", "it ends as it would; an `async def` that runs is cancelled: `REVOKED`")
def test_revoking_a_running_or_ended_call_changes_nothing(run, stock):
    key = secrets.token_hex(4)
    running = stock.call("actor.hold", key)
    until(lambda: run.ran(key) == 1)
    stock.do("revoke", running)
    run.release(key)
    assert stock.get(running)["value"] > 0
    stock.do("revoke", running)
    stock.do("by_id", running, "after")
    assert stock.state("after") == "SUCCESS"
    awaiting = stock.call("actor.ahold", f"async {key}")
    until(lambda: run.ran(f"async {key}") == 1)
    stock.do("revoke", awaiting)
    fails(stock, awaiting, "TaskRevokedError", "revoked")


@row("`revoke(terminate=True)`", "not possible: as `revoke`, and the worker's reply is an error that says so")
def test_termination_is_refused_in_the_workers_reply(run, stock):
    key = secrets.token_hex(4)
    running = stock.call("actor.hold", key)
    until(lambda: run.ran(key) == 1)
    ((told,),) = [list(one.values()) for one in stock.do("revoke", running, terminate=True)]
    assert "terminate is not possible" in told["error"]
    run.release(key)
    assert stock.get(running)["value"] > 0


@as_ever("`control.ping`")
def test_workers_answer_a_ping(stock):
    assert [list(one.values()) for one in stock.do("ping")] == [[{"ok": "pong"}]]


def inspected(stock: StockProgram, what: str) -> Any:
    """Return what the one worker answers to `celery inspect`."""
    ((worker,),) = stock.do("ping")
    (answer,) = json.loads(stock.do("celery", "inspect", "-j", "-t", "120", "-d", worker, what)).values()
    return answer


@as_ever("`celery inspect` (`ping`, `registered`, `stats`)")
def test_workers_tell_an_inspector_their_services_and_counts(stock):
    assert inspected(stock, "ping") == {"ok": "pong"}
    assert {"actor.add", "actor.fail"} <= set(inspected(stock, "registered"))
    assert stock.get(stock.call("actor.add", 1)) == {"value": 2}
    assert inspected(stock, "stats")["total"]["actor.add"] >= 1


@row(
    "`celery inspect`: `active`, `reserved`, `scheduled`",
    "empty: `python -m workers.services` counts what waits and runs",
    "`reserved` lists the calls that a worker holds",
)
def test_an_inspector_is_told_of_held_calls_on_the_embedded_server_alone(stock, busy, on_rabbitmq):
    held = stock.call("actor.add", 5)
    assert inspected(stock, "active") == inspected(stock, "scheduled") == []
    until(lambda: on_rabbitmq or {"actor.hold", "actor.add"} == {one["name"] for one in inspected(stock, "reserved")})
    assert not on_rabbitmq or inspected(stock, "reserved") == []
    busy()
    assert stock.get(held) == {"value": 6}


@as_ever("`retry_policy`")
def test_a_call_with_a_retry_policy_is_called(stock):
    assert stock.get(stock.call("actor.add", 1, retry=True, retry_policy={"max_retries": 2})) == {"value": 2}


@row("`serializer` other than `json`; `compression`", "`FAILURE` at once: `CodecError`")
@pytest.mark.parametrize(
    ("option", "why"),
    [({"serializer": "pickle"}, "x-python-serialize"), ({"compression": "gzip"}, "compressed")],
    ids=str,
)
def test_a_call_that_nobody_reads_fails_at_once(stock, option, why):
    fails(stock, stock.call("actor.add", 1, **option), "CodecError", why)


@row(
    "a service that no worker ever offered",
    "`PENDING` for ever; on RabbitMQ, with `mandatory=True` and `confirm_publish`, `apply_async` raises `ChannelError`",
)
def test_a_service_that_nobody_offers_is_refused_where_the_client_asks_for_that(stock, on_rabbitmq):
    asked = {"mandatory": True} if on_rabbitmq else {}
    if on_rabbitmq:
        with pytest.raises(RuntimeError, match=r"ChannelError.*NO_ROUTE"):
            stock.call("actor.nobody", **asked)
    assert stock.state(stock.call("actor.nobody")) == "PENDING"


@row("`priority`", "no effect without [levels](delivery.md#priorities)", "kombu's priorities")
def test_a_call_with_a_priority_is_called(stock):
    assert stock.get(stock.call("actor.add", 1, priority=9)) == {"value": 2}


def test_the_page_has_the_table_that_these_tests_hold():
    lines = (ROOT / "docs" / "celery.md").read_text().splitlines()
    start = lines.index("| feature | such a client sees |")
    table = lines[start + 2 : start + 2 + len(ROWS)]
    assert table == [f"| {feature} | {seen} |" for feature, seen in ROWS.items()]
    assert not lines[start + 2 + len(ROWS)].startswith("|")
    sentence = " ".join(lines[lines.index("", start - 6) + 1 : start])
    assert f"These work as in Celery: {', '.join(AS_EVER)}." in sentence
