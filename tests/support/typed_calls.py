"""Typed calls of services on which test_stubs.py runs mypy: it must find errors exactly at each `# error`."""

from __future__ import annotations

from typing import Protocol, assert_type

from tasks.service import Worker, service
from tasks.solver import Solver, remote


@remote
def policy_eval(state: list[float]) -> int:
    raise NotImplementedError


@remote(service="actor.search")
async def search(question: str, *, limit: int = 3) -> list[str]:
    raise NotImplementedError


class Actor(Worker):
    @service
    def add(self, a: int, b: int = 1) -> int:
        return a + b

    @service(concurrency=3)
    async def ask(self, question: str) -> str:
        return question


class Calls(Protocol):
    def policy_eval(self, state: list[float]) -> int: ...
    async def search(self, question: str) -> list[str]: ...


def plain(solver: Solver) -> None:
    assert_type(policy_eval([1.0]), int)
    policy_eval("wrong")  # error
    actor = solver.stub(Actor)
    assert_type(actor, Actor)
    assert_type(actor.add(2), int)
    actor.add("wrong")  # error
    calls = solver.options(deadline=5.0).stub(Calls, "actor")
    assert_type(calls, Calls)
    assert_type(calls.policy_eval([1.0]), int)
    calls.unknown()  # error


async def asyncio(solver: Solver) -> None:
    assert_type(await search("what", limit=2), list[str])
    await search(3)  # error
    assert_type(await solver.stub(Actor).ask("what"), str)
    assert_type(await solver.stub(Calls).search("what"), list[str])
