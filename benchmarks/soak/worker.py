"""Serve the services of `benchmarks.soak`, and watch turns: `python -m benchmarks.soak.worker BROKER REDIS RUN`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from typing import Any

from celery.exceptions import Ignore, Reject, Retry

from tasks.app import create_app
from tasks.service import Worker, service
from tasks.topology import Topology
from tasks.worker.batch_scheduler import BatchScheduler
from tasks.worker.server import Serving

SIZES = (20, 10, 24)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class TakesArguments(Exception):
    def __init__(self, one: int, *, two: int) -> None:
        super().__init__()
        self.one, self.two = one, two


class Base(BaseException):
    pass


RAISED = {
    "ValueError": lambda: ValueError("wrong"),
    "KeyError": lambda: KeyError(("a", 1)),
    "StopIteration": lambda: StopIteration(1),
    "RecursionError": lambda: RecursionError("deep"),
    "MemoryError": lambda: MemoryError(),
    "OSError": lambda: OSError(28, "No space left on device", "/file"),
    "AssertionError": lambda: AssertionError(),
    "GeneratorExit": lambda: GeneratorExit(),
    "CancelledError": lambda: asyncio.CancelledError(),
    "BaseException": lambda: Base("base"),
    "group": lambda: ExceptionGroup("some", [ValueError("one"), TypeError("two")]),
    "surrogate": lambda: ValueError("\udcff"),
    "unprintable": lambda: Unprintable(),
    "arguments": lambda: TakesArguments(1, two=2),
    "long": lambda: ValueError("x" * 1_000_000),
    "ignore": lambda: Ignore(),
    "reject": lambda: Reject("no"),
    "retry": lambda: Retry("later", when=1),
}


class Soak(Worker):
    """The services."""

    @service(batch=SIZES[0])
    def by_20(self, numbers: list[int]) -> list[int]:
        return [number + 1 for number in numbers]

    @service(batch=SIZES[1])
    def by_10(self, numbers: list[int]) -> list[int]:
        return [number + 1 for number in numbers]

    @service(batch=SIZES[2])
    def by_24(self, numbers: list[int]) -> list[int]:
        return [number + 1 for number in numbers]

    @service(batch=8)
    def halves(self, numbers: list[int]) -> list[float | Exception]:
        return [ValueError("odd") if number % 2 else number / 2 for number in numbers]

    @service(batch=8)
    def inverses(self, numbers: list[int]) -> list[float]:
        return [1 / number for number in numbers]

    @service
    def add(self, number: int) -> int:
        return number + 1

    @service
    def raises(self, kind: str) -> object:
        if kind == "object":
            return object()  # a result that cannot be sent
        raise RAISED[kind]()

    @service
    def turns(self) -> dict[str, Any]:
        """Return how long calls waited for their turns since the last question."""
        found = {"overtaken": watch.overtaken, "longest": dict(watch.longest), "batches": dict(watch.ran)}
        watch.overtaken, watch.longest = 0, {}
        return found


class Watch:
    """Counts the batches of others that ran while a call waited, and the calls that came later and ran first."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.longest: dict[str, int] = {}
        self.overtaken = 0
        self._came: dict[int, int] = {}  # call -> others' batches before its arrival

    def _others(self, name: str) -> int:
        return self.ran.total() - self.ran[name]

    def install(self) -> None:
        """Watch every scheduler of this process."""
        add, take = BatchScheduler.add, BatchScheduler.take

        def watched_add(scheduler: BatchScheduler, queue: Any, call: Any) -> None:
            self._came[id(call)] = self._others(queue.spec.name)
            add(scheduler, queue, call)

        def watched_take(scheduler: BatchScheduler, queue: Any) -> list[Any]:
            calls = take(scheduler, queue)
            name = queue.spec.name
            if calls:
                oldest = scheduler._age(calls[0])
                waiting = [other for other in scheduler._queues if other.waiting and other.spec.minimum == 1]
                self.overtaken += sum(scheduler._age(other.waiting[0]) < oldest for other in waiting)
                self.ran[name] += 1
            before = self._others(name)
            for call in calls:
                waited = before - self._came.pop(id(call), before)
                self.longest[name] = max(waited, self.longest.get(name, 0))
            return calls

        BatchScheduler.add, BatchScheduler.take = watched_add, watched_take  # type: ignore[method-assign]


watch = Watch()


def main() -> int:
    broker_url, redis_url, run = sys.argv[1:4]
    logging.basicConfig(level="ERROR", stream=sys.stderr)
    watch.install()
    topology = Topology(run)
    app = create_app(topology, broker_url, redis_url)
    return Serving(app, topology, [Soak()], "soak", log_level="CRITICAL").run(lambda: print("ready", flush=True))


if __name__ == "__main__":
    sys.exit(main())
