"""Weights to many subscribers: Warren's events beside raw kombu on a fanout exchange, in bytes delivered a second.

`python -m benchmarks.calls.fanout KIND BROKER REDIS RUN COUNT` is a process of COUNT subscribers, each with a
connection of its own; it prints "ready", then a line for each set of weights that all of its subscribers hold.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
import uuid
from typing import Any

import numpy as np
from kombu import Connection, Exchange, Producer, Queue

from benchmarks.calls.peers import started
from tasks.app import create_app
from tasks.events import EventDispatcher, Subscription
from tasks.topology import Topology

WEIGHTS = np.random.default_rng(0).standard_normal(1_600_000).astype("f4")  # 6.4 MB
CHUNK = 1 << 20  # bytes; raw kombu is fastest in messages of 1 MiB
PROCESSES = 4  # processes over which subscribers are spread
TIMES, WARM_UP = 8, 2  # sets of weights


class Tally:
    """Prints a line whenever every subscriber of this process has one more set of weights."""

    def __init__(self, count: int) -> None:
        self._got, self._told, self._lock = [0] * count, 0, threading.Lock()

    def add(self, index: int) -> None:
        """Count another set that subscriber `index` holds."""
        with self._lock:
            self._got[index] += 1
            while min(self._got) > self._told:
                self._told += 1
                print(self._told, flush=True)


def exchange_of(run: str) -> Exchange:
    """Return the raw fanout exchange."""
    return Exchange(f"raw.fanout.{run}", "fanout", durable=False, auto_delete=False, delivery_mode=1)


def subscribe_raw(broker_url: str, run: str, index: int, tally: Tally, ready: threading.Barrier) -> None:
    """Subscribe by plain kombu: a set is whole when as many bytes have arrived."""
    with Connection(broker_url) as connection, connection.channel() as channel:
        name = f"raw.fanout.{run}.{uuid.uuid4().hex}"
        queue = Queue(name, exchange_of(run), exclusive=True, auto_delete=True, durable=False)(channel)
        parts: list[bytes] = []

        def receive(message: Any) -> None:
            parts.append(message.body)
            if sum(map(len, parts)) >= WEIGHTS.nbytes:
                array = np.frombuffer(b"".join(parts), "f4")
                assert len(array) == len(WEIGHTS)
                parts.clear()
                tally.add(index)

        with connection.Consumer(queue, channel=channel, on_message=receive, no_ack=True):
            ready.wait()
            while True:
                connection.drain_events()


def subscribers(kind: str, broker_url: str, redis_url: str, run: str, count: int) -> None:
    """Run one process of subscribers until it is told to stop."""
    tally, ready = Tally(count), threading.Barrier(count + 1)
    if kind == "raw":
        for index in range(count):
            arguments = (broker_url, run, index, tally, ready)
            threading.Thread(target=subscribe_raw, args=arguments, daemon=True).start()
        ready.wait()
    else:
        topology = Topology(run)
        app = create_app(topology, broker_url, redis_url)
        for index in range(count):

            def receive(payload: Any, index: int = index) -> None:
                assert payload["data"].nbytes == WEIGHTS.nbytes
                tally.add(index)

            Subscription(app, topology, {"weights": receive}, subscriber=f"s{index}").start()
    print("ready", flush=True)
    threading.Event().wait()


def measure(kind: str, broker_url: str, redis_url: str, run: str, count: int) -> float:
    """Return bytes/s delivered to `count` subscribers: all hold one set before the next is sent."""
    shares = [len(part) for part in np.array_split(np.arange(count), min(PROCESSES, count))]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                started([sys.executable, "-m", "benchmarks.calls.fanout", kind, broker_url, redis_url, run, str(share)])
            )
            for share in shares
        ]
        send = sender(kind, broker_url, redis_url, run, stack)
        times = []
        for _ in range(WARM_UP + TIMES):
            begun = time.perf_counter()
            send()
            for process in processes:
                assert process.stdout is not None
                process.stdout.readline()
            times.append(time.perf_counter() - begun)
    return count * WEIGHTS.nbytes / statistics.median(times[WARM_UP:])


def sender(kind: str, broker_url: str, redis_url: str, run: str, stack: contextlib.ExitStack) -> Any:
    """Return a function that sends one set of weights to all."""
    if kind == "warren":
        topology = Topology(run)
        events = EventDispatcher(create_app(topology, broker_url, redis_url), topology)
        return lambda: events.fire("weights", {"version": 1, "data": WEIGHTS})
    connection = stack.enter_context(Connection(broker_url))
    producer = Producer(connection.channel(), exchange_of(run))
    stack.callback(lambda: exchange_of(run)(connection.channel()).delete())

    def send() -> None:
        raw = memoryview(WEIGHTS).cast("B")
        for start in range(0, len(raw), CHUNK):
            producer.publish(
                bytes(raw[start : start + CHUNK]),
                content_type="application/octet-stream",
                content_encoding="binary",
                declare=[exchange_of(run)],
            )

    return send


if __name__ == "__main__":
    subscribers(*sys.argv[1:5], int(sys.argv[5]))
