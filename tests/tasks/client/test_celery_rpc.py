"""Tests of calls by Celery's own client with results in memory: errors are as on RabbitMQ, and no loop waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.exceptions import OperationalError
from support.in_memory import ADD, PUSH, TOPOLOGY, Directory
from support.waiting import until

from tasks.client.call_table import CallTable
from tasks.client.solver import Solver
from warren.errors import BrokerError, CallCancelled, CodecError, DeadlinePassed, LeagueError, RemoteFailure


class Stock:
    """A Celery app whose sent tasks `serve` runs. `threads`: those that sent calls or looked for results."""

    def __init__(self, serve: Callable[..., Any]) -> None:
        self.backend = Celery("stock", backend="cache+memory://", set_as_current=False).backend
        self.threads: set[int] = set()
        self.looks, self.revoked = 0, list[Any]()

        def look(keys: Any) -> Any:
            self.threads.add(threading.get_ident())
            self.looks += 1
            return [self.backend.get(key) for key in keys]

        def send_task(name: str, args: Any, kwargs: Any, task_id: str, **_: Any) -> None:
            self.threads.add(threading.get_ident())
            try:
                result = serve(*args, **kwargs)
            except Unanswered:
                return
            except OperationalError:
                raise
            except Exception as error:
                self.backend.mark_as_failure(task_id, error)
            else:
                self.backend.mark_as_done(task_id, result)

        self.backend.mget = look
        app = SimpleNamespace(
            backend=self.backend,
            send_task=send_task,
            control=SimpleNamespace(revoke=self.revoked.append),
            conf=SimpleNamespace(result_backend="redis://127.0.0.1:1/0"),  # the directory's place
            warren_broker=SimpleNamespace(direct_reply=False),
        )
        self.solver = Solver(app, TOPOLOGY)
        self.solver._directory = Directory(ADD, PUSH)  # type: ignore[assignment]


class Unanswered(Exception):
    """Raised by a service whose call stays unanswered."""


@pytest.fixture
def stock(request: pytest.FixtureRequest) -> Iterator[Callable[..., Stock]]:
    made: list[Stock] = []

    def make(serve: Callable[..., Any]) -> Stock:
        made.append(Stock(serve))
        return made[-1]

    yield make
    for one in made:
        one.solver.close()


def unanswered(*_: Any) -> None:
    raise Unanswered


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_calls_are_answered_and_leave_nothing(stock):
    one = stock(lambda number: number + 1)
    assert one.solver.call("actor.add", 1) == 2
    assert list(one.solver.map("actor.add", range(20))) == list(range(1, 21))
    assert one.solver.call("actor.push", 1) is None and one.solver.flush() == 0
    client = one.solver._client()
    assert client.under_way == 0 and not client.table._numbered


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("words"), "ValueError"),
        (LeagueError("words"), "warren.errors.LeagueError"),
        (redis.ConnectionError("words"), "redis.exceptions.ConnectionError"),
        (type("Own", (Exception,), {"__module__": "nowhere.known"})("words"), "nowhere.known.Own"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_kind_of_a_failure_names_its_class_and_module_as_on_rabbitmq(stock, error, kind):
    with pytest.raises(RemoteFailure) as caught:
        stock(failing(error)).solver.call("actor.add", 1)
    assert (caught.value.kind, caught.value.remote_message) == (kind, "words")


def test_a_loops_thread_neither_sends_nor_looks_for_results(stock):
    one = stock(lambda number: number + 1)

    async def main() -> list[Any]:
        one.threads.clear()
        answers = await asyncio.gather(*(one.solver.acall("actor.add", number) for number in range(50)))
        assert threading.get_ident() not in one.threads and one.threads
        return answers

    assert asyncio.run(asyncio.wait_for(main(), 60.0)) == list(range(1, 51))


def test_all_calls_of_a_loop_are_looked_for_by_one_command(stock):
    one = stock(unanswered)

    async def main() -> None:
        one.solver._find("actor.add")
        calls = [one.solver.asend("actor.add", number, deadline=0.3) for number in range(200)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in ended} == {DeadlinePassed}

    asyncio.run(asyncio.wait_for(main(), 60.0))
    assert 0 < one.looks < 2 * 300, "looked more often than once per millisecond"


def test_a_call_during_a_look_for_results_is_sent_at_once(stock):
    sent: list[int] = []

    def serve(number: int) -> None:
        sent.append(number)
        raise Unanswered

    one = stock(serve)

    async def main() -> None:
        one.solver._find("actor.add")
        futures = [one.solver.asend("actor.add", 1)]
        while sent != [1]:
            await asyncio.sleep(0.001)
        futures.append(one.solver.asend("actor.add", 2))
        while sent != [1, 2]:
            await asyncio.sleep(0.001)
        for future in futures:
            future.cancel()
        while len(one.revoked) < 2:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), 60.0))


def test_a_call_made_while_another_thread_closes_its_solver_fails(stock, monkeypatch):
    one, take_in = stock(unanswered), CallTable.send_later

    def close_first(*given: Any) -> None:
        closing = threading.Thread(target=one.solver.close)
        closing.start()
        closing.join()
        take_in(*given)

    async def main() -> None:
        one.solver._find("actor.add")
        monkeypatch.setattr(CallTable, "send_later", close_first)
        await one.solver.acall("actor.add", 1, deadline=None)

    with pytest.raises(BrokerError, match="the Solver was closed"):
        asyncio.run(asyncio.wait_for(main(), 60.0))


def test_an_absent_broker_fails_calls_and_reports_lost_one_way_calls(stock):
    one = stock(failing(OperationalError("away")))
    with pytest.raises(BrokerError, match="the broker is away: away"):
        one.solver.call("actor.add", 1)
    assert one.solver.call("actor.push", 1) is None
    with pytest.raises(BrokerError, match="1 one-way calls are lost"):
        one.solver.flush()
    assert one.solver.failed == 1


def test_arguments_that_cannot_be_sent_are_refused_before_an_entry(stock):
    one = stock(unanswered)
    with pytest.raises(CodecError):
        one.solver.call("actor.add", object())
    assert one.solver._client().under_way == 0


def test_handles_are_futures_here_too(stock):
    one = stock(lambda number: number + 1)
    found: list[Any] = []
    one.solver.send("actor.add", 1).add_done_callback(found.append)
    until(lambda: found, "the callback")
    assert found[0].result() == 2
    waiting = stock(unanswered).solver.send("actor.add", 1)
    assert waiting.cancel() and isinstance(waiting.exception(), CallCancelled)


def test_a_waiting_caller_gets_the_error_of_an_absent_redis(stock):
    one = stock(unanswered)
    one.backend.mget = failing(redis.ConnectionError("no Redis"))
    with pytest.raises(BrokerError, match=r"cannot look for the result of actor\.add: no Redis"):
        one.solver.call("actor.add", 1)


def test_a_result_that_cannot_be_removed_is_the_calls_result_all_the_same(stock):
    one = stock(lambda number: number + 1)
    one.backend.forget = failing(redis.ConnectionError("no Redis"))
    assert one.solver.call("actor.add", 1) == 2
    assert list(one.solver.map("actor.add", range(3))) == [1, 2, 3]
