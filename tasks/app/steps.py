"""Work in steps: a generator yields the calls to run next, is sent their outcomes, and returns one outcome per call.

So counting, isolating and giving up are written once for calls that run at once and for those of an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

Steps = Generator[list[Any], list[Any], list[Any]]


def drive(steps: Steps, run: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Run each step at once; return the outcomes of all."""
    try:
        some = next(steps)
        while True:
            try:
                found = run(some)
            except BaseException as error:
                some = steps.throw(error)
            else:
                some = steps.send(found)
    except StopIteration as done:
        outcomes: list[Any] = done.value
        return outcomes


def nested(steps: Steps, inner: Callable[[list[Any]], Steps]) -> Steps:
    """Run each step in the steps that `inner` makes of it."""
    try:
        some = next(steps)
        while True:
            try:
                found = yield from inner(some)
            except BaseException as error:
                some = steps.throw(error)
            else:
                some = steps.send(found)
    except StopIteration as done:
        outcomes: list[Any] = done.value
        return outcomes
