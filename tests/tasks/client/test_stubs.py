"""Tests of stubs of services: the calls that they make, and their types for mypy."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import support
from support.in_memory import Directory, Service, solver_of

from tasks.client import remote as remote_module
from tasks.client.solver import Solver
from tasks.service import Spec, Worker, event_handler, service
from tasks.solver import Args, remote
from tasks.testing import InMemoryBroker
from warren.errors import ConfigurationError

ROOT = Path(__file__).parents[3]
TYPED = support.FOLDER / "typed_calls.py"
PLAN = Spec("planner.plan")


class Planner(Worker):
    @service
    def plan(self, state: int, deadline: float = 0.0) -> Any:
        """Plan."""

    @event_handler("stated")
    def hear(self, payload: Any) -> None: ...

    def helper(self) -> None: ...


class Calls(Protocol):
    async def plan(self, state: int, deadline: float = 0.0) -> Any: ...


@pytest.fixture
def solver() -> Iterator[Solver]:
    broker = InMemoryBroker()
    made = solver_of(broker)
    made._directory = Directory(PLAN)  # type: ignore[assignment]
    with made, Service(broker, PLAN, lambda *args, **kwargs: [list(args), kwargs]):
        yield made


def test_a_service_gets_all_arguments_of_args_and_of_a_typed_stub(solver):
    expected = [[1], {"deadline": 3.0}]
    assert solver.call("planner.plan", Args(1, deadline=3.0)) == expected
    assert solver.send("planner.plan", Args(1, deadline=3.0), deadline=20.0).result() == expected
    assert solver.retrieve("planner", "plan", Args(1, deadline=3.0)) == expected
    assert solver.stub(Planner).plan(1, deadline=3.0) == expected
    assert solver.options(deadline=20.0).stub(Planner).plan(1, deadline=3.0) == expected

    async def scenario() -> list[Any]:
        stub = solver.stub(Calls, "planner")
        return [await solver.acall("planner.plan", Args(1, deadline=3.0)), await stub.plan(1, deadline=3.0)]

    assert asyncio.run(scenario()) == [expected, expected]
    assert solver.call("planner.plan", 1, deadline=20.0) == [[1], {}]


def test_args_beside_other_arguments_are_refused(solver):
    for wrong in (((Args(1), 2), {}), ((Args(1),), {"state": 1})):
        with pytest.raises(ConfigurationError, match=r"Args\(\.\.\.\) alone"):
            solver.call("planner.plan", *wrong[0], **wrong[1])


def test_a_stub_of_a_worker_has_its_services_and_nothing_else(solver):
    stub: Any = solver.stub(Planner)
    assert inspect.getdoc(stub.plan) == "Plan." and "plan" in dir(stub)
    for name in ("hear", "helper", "plam"):
        with pytest.raises(AttributeError, match=f"no service '{name}', but plan"):
            getattr(stub, name)


def test_a_stub_that_names_no_service_is_refused(solver):
    class Nothing:
        pass

    for wrong in (Nothing, Planner(), "planner"):
        with pytest.raises(ConfigurationError, match="stub"):
            solver.stub(wrong)


def test_a_remote_stub_calls_its_service_with_its_own_deadline_or_the_calls(solver, monkeypatch):
    monkeypatch.setattr(remote_module, "_default", [solver])

    @remote(service="planner.plan")
    def plan(state: int) -> Any:
        raise NotImplementedError

    @remote(service="planner.plan")
    async def aplan(state: int, deadline: float) -> Any:
        raise NotImplementedError

    assert plan(1) == [[1], {}]
    assert plan(1, deadline=20.0) == [[1], {}]  # type: ignore[call-arg]
    assert inspect.iscoroutinefunction(aplan)
    assert asyncio.run(aplan(1, deadline=3.0)) == [[1], {"deadline": 3.0}]


def test_mypy_knows_the_types_of_stubs():
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(TYPED)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = {int(line) for line in re.findall(rf"{TYPED.name}:(\d+): error", found.stdout)}
    expected = {number for number, line in enumerate(TYPED.read_text().splitlines(), 1) if line.endswith("# error")}
    assert errors == expected and len(expected) == 4, found.stdout + found.stderr
