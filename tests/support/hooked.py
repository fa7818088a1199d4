"""`python hooked.py BROKER REDIS RUN NAME`: a worker of Back, or Front (ROLE=front), with middleware for tests.

The middleware is that of docs/services.md, and one that records each hook of this worker in Redis.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import redis

from tasks.app import create_app
from tasks.middleware import Call, Middleware, current_call, current_calls
from tasks.service import Worker, service
from tasks.solver import Solver
from tasks.topology import Topology
from tasks.worker.server import Serving

PAGE = Path(__file__).parents[2] / "docs/services.md"


def from_page(file: str) -> dict[str, Any]:
    """Run the page's code block for `file`; return the names that it defines."""
    (code,) = re.findall(rf"^```python\n# {re.escape(file)}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, file, "exec"), names)
    return names


def traceparent() -> Middleware:
    made: Middleware = from_page("traceparent.py")["TraceParent"]()
    return made


class Noted(Middleware):
    """Appends each hook to the list at `key`; fails calls with the header "fail"."""

    def __init__(self, store: redis.Redis, key: str) -> None:
        self._store, self._key = store, key

    def before_worker_boot(self, worker: str) -> None:
        self._note("boot")

    def before_run(self, call: Call) -> None:
        self._note(f"before {call.service} {call.headers.get('number')}")
        if call.headers.get("fail") == "before":
            raise PermissionError("refused by a hook")

    def after_run(self, call: Call, *, result: Any = None, error: BaseException | None = None) -> None:
        self._note(f"after {call.service} {call.headers.get('number')} {type(error).__name__ if error else result}")
        if call.headers.get("fail") == "after":
            raise ValueError("a hook failed")

    def after_drop(self, call: Call, reason: str) -> None:
        self._note(f"drop {call.service} {reason}")

    def after_worker_shutdown(self, worker: str) -> None:
        self._note("shutdown")

    def _note(self, what: str) -> None:
        self._store.rpush(self._key, what)


class Back(Worker):
    @service
    def add(self, a: int) -> int:
        return a + 1

    @service
    def parent(self) -> Any:
        call = current_call()
        return None if call is None else call.headers.get("traceparent")

    @service(batch=4)
    def parents(self, numbers: list[int]) -> list[Any]:
        return [call.headers.get("traceparent") for call in current_calls()]

    @service(response=False)
    def push(self, a: int) -> None:
        """Do nothing."""

    @service
    def total(self, numbers: list[int]) -> int:
        return sum(numbers)


class Front(Worker):
    def __init__(self, solver: Solver) -> None:
        super().__init__()
        self.solver = solver

    @service
    def ask(self) -> list[Any]:
        call = current_call()
        assert call is not None
        found = [call.headers.get("traceparent"), self.solver.call("back.parent")]
        return [*found, *self.solver.map("back.parents", [1, 2])]


def main() -> int:
    broker_url, redis_url, run, name = sys.argv[1:5]
    logging.basicConfig(level="WARNING", stream=sys.stderr)
    topology = Topology(run)
    app = create_app(topology, broker_url, redis_url)
    front = os.environ.get("ROLE") == "front"
    worker = Front(Solver(app, topology, middleware=[traceparent()])) if front else Back()
    noted = Noted(redis.Redis.from_url(redis_url), f"{topology.key_prefix}noted")
    timed = from_page("timed.py")["Timed"]()
    serving = Serving(app, topology, [worker], name, log_level="WARNING", middleware=[timed if front else noted])
    return serving.run(on_ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    sys.exit(main())
