"""Three saturated services with batches of 20, 10 and 24, beside errors of every kind and event loops.

`python -m benchmarks.soak [--seconds 60]` on a private RabbitMQ and on the embedded Redis: descriptors and memory of
the worker and of its caller over time, the most batches of others for which a call waited, and calls overtaken. The
caller's memory grows for a minute and then stays, since each of its threads keeps a heap: the blocks in use show
whether it leaks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.calls.peers import started
from benchmarks.soak.worker import RAISED, SIZES
from tasks import brokers
from tasks.admin.cleanup import remove_run
from tasks.app import create_app
from tasks.solver import Solver
from tasks.topology import Topology
from tasks.worker.consumption import PREFETCH
from warren import redis_client
from warren.errors import CallError
from workers import servers

LOOPS = 100  # event loops one after another, at least
IN_FLIGHT = 100  # calls of each of two callers of a service
BESIDE = 6  # calls at a time of the services that are not saturated
# A call waits for the others' batches that hold earlier calls, and one more of each.
TURN = {
    f"soak.by_{size}": sum(-(-PREFETCH // other) + 1 for other in SIZES if other != size) + BESIDE for size in SIZES
}


def soak(broker_url: str, redis_url: str, seconds: float) -> dict[str, Any]:
    """Run all of it for `seconds`; return the figures. Raises AssertionError for a wrong answer."""
    run = f"soak-{secrets.token_hex(4)}"
    topology = Topology(run)
    app = create_app(topology, broker_url, redis_url)
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.soak.worker", broker_url, redis_url, run]
        worker = stack.enter_context(started(command, ends_with_input=False))
        stack.callback(remove_run, app, redis_client.connect(redis_url), topology)
        solver = stack.enter_context(Solver(app, topology, deadline=120.0))
        return _soak(solver, worker.pid, seconds, brokers.of(app).direct_reply)


def _soak(solver: Solver, worker: int, seconds: float, replies: bool) -> dict[str, Any]:
    ending, wrong = threading.Event(), list[BaseException]()
    some = 500 if replies else 100  # Redis passes a twentieth of the calls
    # Redis keeps nothing of a call that was ignored: its caller waits until the deadline.
    kinds = [kind for kind in (*RAISED, "object") if kind != "ignore" or replies]
    counts = {"calls": 0, "loops": 0, "errors": 0, "bad members": 0}
    lock = threading.Lock()

    def count(what: str, number: int = 1) -> None:
        with lock:
            counts[what] += number

    def saturate(name: str) -> None:
        while not ending.is_set():
            found = list(solver.map(name, range(some), in_flight=IN_FLIGHT))
            assert found == list(range(1, some + 1)), name
            count("calls", len(found))

    def loops() -> None:
        while not ending.is_set() or counts["loops"] < LOOPS:
            assert asyncio.run(solver.acall("soak.add", 1)) == 2
            count("loops")

    def errors() -> None:
        while not ending.is_set():
            for kind in kinds:
                failed = solver.send("soak.raises", kind).exception()
                assert isinstance(failed, CallError), (kind, failed)
                count("errors")

    def bad_members() -> None:
        while not ending.is_set():
            for name, numbers, bad in (("soak.halves", (2, 4, 5, 6), 5), ("soak.inverses", (1, 2, 0, 4), 0)):
                sent = {number: solver.send(name, number) for number in numbers}
                assert [number for number, call in sent.items() if call.exception() is not None] == [bad], name
                count("bad members")

    def guarded(job: Any, *arguments: Any) -> None:
        try:
            job(*arguments)
        except BaseException as error:
            wrong.append(error)
            ending.set()

    jobs = [(saturate, name) for name in TURN for _ in range(2)] + [(loops,), (errors,), (bad_members,)]
    threads = [threading.Thread(target=guarded, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    samples = _samples(seconds, worker, ending)
    ending.set()
    for thread in threads:
        thread.join(120.0)
    assert not wrong, wrong
    assert not any(thread.is_alive() for thread in threads), "a caller hangs"
    turns = solver.call("soak.turns")
    return {"counts": counts, "samples": samples, **turns, "turn": TURN}


def _samples(seconds: float, worker: int, ending: threading.Event) -> list[dict[str, Any]]:
    began, samples = time.monotonic(), []
    while time.monotonic() - began < seconds and not ending.is_set():
        ending.wait(max(0.2, seconds / 30))
        samples.append(
            {
                "s": round(time.monotonic() - began, 1),
                **_sizes("worker", worker),
                **_sizes("caller", os.getpid()),
                "caller blocks": sys.getallocatedblocks(),
            }
        )
    return samples


def _sizes(who: str, process: int) -> dict[str, Any]:
    status = Path(f"/proc/{process}/status").read_text()
    memory = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    descriptors = len(list(Path(f"/proc/{process}/fd").iterdir()))
    return {f"{who} MiB": round(memory / 1024, 1), f"{who} descriptors": descriptors}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=["private", "embedded"], help="one of the two brokers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for mode in [options.only] if options.only else ["private", "embedded"]:
        with tempfile.TemporaryDirectory() as folder, servers.acquire(mode, folder=Path(folder)) as found:
            report = soak(found.broker_url, found.redis_url, options.seconds)
        if options.json:
            print(json.dumps({"broker": mode, **report}))
            continue
        samples = report["samples"]
        print(f"{mode}: {report['counts']}, overtaken {report['overtaken']}")
        for name, longest in report["longest"].items():
            print(
                f"  {name}: waited for {longest} batches of others at most"
                + (f" (its turn: {TURN[name]})" if name in TURN else "")
            )
        for sample in [samples[0], samples[len(samples) // 6], samples[len(samples) // 2], samples[-1]]:
            print(f"  {sample}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
