"""Tests of middleware and headers on RabbitMQ and on the embedded server."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from celery import Celery
from support.calling import Calling
from support.hooked import traceparent
from support.own_run import HOSTLESS, OwnRun, write
from support.waiting import PATIENCE, until

from tasks import codec
from tasks.solver import Solver
from warren.errors import RemoteFailure

HOOKED = support.FOLDER / "hooked.py"
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(params=["servers", "embedded"])
def hooked(request: pytest.FixtureRequest, run_name: str, tmp_path: Path) -> Iterator[Calling]:
    found = request.getfixturevalue(request.param)
    calling = Calling(found.broker_url, found.redis_url, run_name, tmp_path, HOOKED)
    try:
        calling.start()
        yield calling
    finally:
        calling.close()


def noted(calling: Calling) -> list[str]:
    store = calling.solver._directory._redis  # type: ignore[attr-defined]
    return [one.decode() for one in store.lrange(f"{calling.topology.key_prefix}noted", 0, -1)]


def stock_client(calling: Calling) -> Celery:
    codec.register()
    client = Celery(broker=calling.broker_url, backend=calling.redis_url, set_as_current=False)
    client.conf.update(
        task_serializer="warren",
        result_serializer="warren",
        accept_content=["warren", "json"],
        result_backend_transport_options={"global_keyprefix": calling.topology.key_prefix},
    )
    return client


def on_redis(calling: Calling) -> bool:
    return calling.broker_url.startswith("redis")


async def by_loop(solver: Solver) -> list[int]:
    one = await solver.acall("back.add", 3)
    return [one, await solver.asend("back.add", 4), *[result async for result in solver.amap("back.add", [5, 6])]]


def test_worker_hooks_run_around_every_form_of_call_with_callers_headers(hooked):
    mine = hooked.solver.options(headers={"number": 7})
    assert [mine.call("back.add", 1), mine.send("back.add", 2).result()] == [2, 3]
    assert [*mine.map("back.add", [1, 2])] == [2, 3] and asyncio.run(by_loop(mine)) == [4, 5, 6, 7]
    mine.call("back.push", 1)
    assert mine.gather([("back.add", 1), ("back.add", 2)], then="back.total").get(timeout=PATIENCE) == 5
    if not on_redis(hooked):  # on Redis, a client must also name the queue
        address = {"exchange": hooked.topology.service.name, "routing_key": "back.add"}
        result = stock_client(hooked).send_task("back.add", (9,), headers={"number": 7}, **address)
        assert result.get(timeout=PATIENCE) == 10
    until(lambda: any(line.startswith("after back.push 7") for line in noted(hooked)))
    lines = noted(hooked)
    of_add = 10 + (not on_redis(hooked))
    assert lines[0] == "boot" and lines.count("before back.add 7") == of_add
    assert len([line for line in lines if line.startswith("after back.add 7")]) == of_add
    assert lines.count("before back.total 7") == 1 and "after back.total 7 5" in lines
    hooked.processes[0].send_signal(signal.SIGTERM)
    hooked.processes[0].wait(PATIENCE)
    assert noted(hooked)[-1] == "shutdown"


def test_a_hook_that_raises_is_one_clear_failure_of_that_call(hooked):
    for when, kind, words in (("before", "PermissionError", "refused"), ("after", "ValueError", "a hook failed")):
        with pytest.raises(RemoteFailure, match=words) as caught:
            hooked.solver.options(headers={"fail": when}).call("back.add", 1)
        assert caught.value.kind == kind
    assert hooked.solver.call("back.add", 1) == 2
    assert hooked.processes[0].poll() is None


def test_a_trace_passes_to_the_service_and_to_the_services_own_calls(hooked):
    hooked.start(ROLE="front")
    with Solver(hooked.app, hooked.topology, middleware=[traceparent()]) as solver:
        begun = solver.options(headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
        parents = begun.call("front.ask")
        others = solver.call("front.ask")
    assert all(re.fullmatch(rf"00-{TRACE}-[0-9a-f]{{16}}-01", parent) for parent in parents), parents
    assert len(set(parents)) == 4, "calls shared a span"
    assert len({parent.split("-")[1] for parent in others}) == 1 and TRACE not in others[0]
    assert "front.ask None" in (hooked.folder / "actor-1.log").read_text(), "the page's Timed printed nothing"


NOTING = """
from pathlib import Path
from tasks.middleware import Middleware

class Noting(Middleware):
    def before_send(self, call):
        call.headers["sent"] = True

    def before_run(self, call):
        if call.headers.get("sent"):
            with Path(__file__).with_suffix(".txt").open("a") as notes:
                print(call.service, file=notes)
"""


def test_a_run_files_middleware_wraps_calls_of_its_environments_and_services(servers, tmp_path):
    file = write(tmp_path, f"{HOSTLESS}middleware: [noting.py:Noting]\n")
    (tmp_path / "noting.py").write_text(NOTING)
    (tmp_path / "go").touch()
    with OwnRun(file, servers) as run:
        assert run.wait() == 0, run.output
    noted = (tmp_path / "noting.txt").read_text().splitlines()
    assert noted.count("adder.add") >= 20 and noted.count("learner.store") == 20 and "learner.count" in noted
