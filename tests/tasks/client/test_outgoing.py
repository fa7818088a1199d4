"""Tests of callers' headers and middleware: every form of call runs the hooks, and one that raises refuses the call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.in_memory import ADD, PUSH, Service, declare, solver_of
from support.waiting import until

from tasks.middleware import LARGEST, MOST_HEADERS, Call, Middleware, install
from tasks.solver import Args, Solver
from tasks.testing import InMemoryBroker
from warren.errors import CallCancelled, CodecError, ConfigurationError


class Told(Middleware):
    """Records each hook and adds a header to each call; `refuse`: an argument whose calls it refuses."""

    def __init__(self, name: str = "a", log: list[str] | None = None, refuse: Any = None) -> None:
        self.name, self.refuse = name, refuse
        self.log: list[str] = [] if log is None else log

    def before_send(self, call: Call) -> None:
        self.log.append(f"{self.name} before {call.service} {call.args}")
        call.headers[f"number-{self.name}"] = len(self.log)
        if call.args == (self.refuse,):
            raise PermissionError("refused")

    def after_reply(self, call: Call, *, error: BaseException | None = None) -> None:
        self.log.append(f"{self.name} after {type(error).__name__ if error else call.args}")


@pytest.fixture
def broker():
    return InMemoryBroker()


async def collected(solver: Solver) -> list[Any]:
    solver._find("actor.add")
    one = await solver.acall("actor.add", 1)
    two = await solver.asend("actor.add", 2)
    return [one, two, *[result async for result in solver.amap("actor.add", [3, 4])]]


def test_every_form_of_call_has_the_hooks_and_the_headers(broker):
    told = Told()
    with Service(broker, ADD, lambda a: a + 1) as served, solver_of(broker, middleware=[told]) as solver:
        found = [solver.call("actor.add", 5), solver.send("actor.add", 6).result()]
        found += [*solver.map("actor.add", [7, Args(8)], in_flight=2), solver.retrieve("actor", "add", 9)]
        found += asyncio.run(collected(solver))
        assert found == [6, 7, 8, 9, 10, 2, 3, 4, 5]
        assert [headers.keys() for headers in served.headers] == [{"number-a"}] * 9
    for number in range(1, 10):
        assert f"a before actor.add ({number},)" in told.log and f"a after ({number},)" in told.log
    assert len(told.log) == 18


def test_calls_without_a_response_end_when_the_broker_has_them(broker):
    told = Told()
    with Service(broker, PUSH, lambda a: None) as served, solver_of(broker, middleware=[told]) as solver:
        assert solver.call("actor.push", 1) is None
        until(lambda: solver.flush() == 0 and told.log == ["a before actor.push (1,)", "a after (1,)"])
        until(lambda: served.headers == [{"number-a": 1}])


def test_middleware_nest_and_the_first_is_outermost(broker):
    log: list[str] = []
    with Service(broker, ADD, lambda a: a + 1), solver_of(broker, middleware=[Told("a", log), Told("b", log)]) as one:
        one.call("actor.add", 1)
    assert log == ["a before actor.add (1,)", "b before actor.add (1,)", "b after (1,)", "a after (1,)"]


def test_a_hook_that_raises_refuses_the_call_and_earlier_hooks_are_told(broker):
    log: list[str] = []
    middleware = [Told("a", log), Told("b", log, refuse=2)]
    with Service(broker, ADD, lambda a: a + 1) as served, solver_of(broker, middleware=middleware) as solver:
        with pytest.raises(PermissionError, match="refused"):
            solver.call("actor.add", 2)
        assert log == ["a before actor.add (2,)", "b before actor.add (2,)", "a after PermissionError"]
        assert solver.call("actor.add", 3) == 4 and served.taken == [(3,)]


def test_a_map_with_a_refused_call_raises_and_cancels_the_others(broker):
    told = Told(refuse=3)
    declare(broker, ADD)  # without a worker, so calls stay unanswered
    with solver_of(broker, middleware=[told]) as solver:
        with pytest.raises(PermissionError, match="refused"):
            list(solver.map("actor.add", [1, 2, 3]))
        assert told.log.count("a after CallCancelled") == 2 and solver._client().under_way == 0


def test_hooks_are_told_of_a_call_that_cannot_be_sent(broker):
    told = Told()
    with Service(broker, ADD, lambda a: a), solver_of(broker, middleware=[told]) as solver:
        with pytest.raises(CodecError):
            solver.call("actor.add", object())
        assert told.log[-1] == "a after CodecError"


def test_hooks_are_told_of_calls_that_end_with_their_solver(broker):
    told = Told()
    declare(broker, ADD)  # without a worker
    with solver_of(broker, middleware=[told]) as solver:
        solver.send("actor.add", 1)
    assert told.log[-1] == "a after BrokerError"


def test_hooks_are_told_of_a_cancelled_call(broker):
    told = Told()
    declare(broker, ADD)
    with solver_of(broker, middleware=[told]) as solver:
        handle = solver.send("actor.add", 1)
        handle.cancel()
        assert isinstance(handle.failure, CallCancelled) and told.log[-1] == "a after CallCancelled"


def test_options_of_a_view_apply_to_its_calls_and_to_views_of_it(broker):
    with Service(broker, ADD, lambda a, headers=0, deadline=0: a) as served, solver_of(broker) as solver:
        tenant = solver.options(headers={"tenant": "a"}, deadline=5.0)
        assert tenant.call("actor.add", 1, headers=3) == 1, "options took the place of the service's own keywords"
        assert list(tenant.options(headers={"dry": True}).map("actor.add", [2])) == [2]
        assert solver.call("actor.add", 3) == 3
        assert served.headers == [{"tenant": "a"}, {"tenant": "a", "dry": True}, {}]
        assert tenant.deadline == tenant.options().deadline == 5.0 and solver.deadline == 60.0


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"id": "x"}, "header 'id'"),
        ({"x-death": "x"}, "header 'x-death'"),
        ({"CC": "x"}, "header 'CC'"),
        ({"": 1}, "header ''"),
        ({"a" * 129: 1}, "1 to 128 bytes"),
        ({3: 1}, "header 3"),
        ({"a": [1]}, "header 'a' is list"),
        ({"a": None}, "header 'a' is NoneType"),
        ({"a": LARGEST}, "64 bits"),
        ({"a": "\ud800"}, "not UTF-8"),
        ({"a": "x" * MOST_HEADERS}, "send them as an argument"),
        (7, "headers=7"),
    ],
)
def test_headers_that_cannot_travel_are_one_clear_error(broker, headers, told):
    with solver_of(broker) as solver, pytest.raises(ConfigurationError, match=told):
        solver.options(headers=headers)


def test_a_header_of_a_hook_that_cannot_travel_refuses_the_call(broker):
    class Wrong(Middleware):
        def before_send(self, call: Call) -> None:
            call.headers["reply_to"] = "somebody"

    with solver_of(broker, middleware=[Wrong()]) as solver, pytest.raises(ConfigurationError, match="reply_to"):
        solver.call("actor.add", 1)


def test_an_object_that_is_not_middleware_is_one_clear_error(broker):
    with pytest.raises(ConfigurationError, match=r"give an object of it: NAME\(\)"):
        solver_of(broker, middleware=[Told])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="give a list"):
        solver_of(broker, middleware=Told())  # type: ignore[arg-type]


def test_installed_middleware_is_that_of_every_solver_without_its_own(broker):
    told = Told()
    install(told)
    try:
        with Service(broker, ADD, lambda a: a), solver_of(broker, middleware=None) as solver:  # type: ignore[arg-type]
            solver.call("actor.add", 1)
    finally:
        install()
    assert told.log == ["a before actor.add (1,)", "a after (1,)"]


def test_a_solver_without_options_and_hooks_has_no_extras(broker):
    class AtWorkers(Middleware):
        def before_run(self, call: Call) -> None:
            """Do nothing."""

    with solver_of(broker, middleware=[AtWorkers()]) as solver:
        assert solver._extras is None and solver.options(deadline=1.0)._extras is None
