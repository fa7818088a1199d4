"""The four peers of `benchmarks.calls`: Warren, stock Celery, raw py-amqp, Ray. Each serves, and is called.

`python -m benchmarks.calls.peers KIND BROKER REDIS RUN` is the serving process of one; "ready" means that it serves.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import amqp
import numpy as np
from celery import Celery

from benchmarks.calls.actor import OBSERVATION, WEIGHTS, Actor
from benchmarks.calls.timing import TimedActor, TimedLoop
from tasks import codec
from tasks.app import create_app
from tasks.solver import Solver
from tasks.topology import Topology
from tasks.worker.server import Serving

IN_FLIGHT = 16


def stock_celery(broker_url: str, run: str) -> Celery:
    """Return Celery as fast as its settings allow: results as messages (rpc://), transient, Warren's serializer.

    With results in Redis a call has to wait about twice as often: subscribe, two reads, store, publish, unsubscribe.
    """
    codec.register()
    app = Celery(f"stock.{run}", broker=broker_url, backend="rpc://", set_as_current=False)
    app.conf.update(
        task_serializer=codec.NAME,
        result_serializer=codec.NAME,
        accept_content=[codec.NAME, "json"],
        task_default_queue=f"stock.{run}",
        worker_prefetch_multiplier=64,
        worker_redirect_stdouts=False,  # "ready" is for the parent to read
        task_default_delivery_mode="transient",
        result_persistent=False,
    )

    @app.task(name="infer", shared=False)  # type: ignore[untyped-decorator]
    def infer(observation: np.ndarray) -> np.ndarray:
        return (observation @ WEIGHTS).argmax(-1)

    return app


def serve_raw(broker_url: str, run: str) -> None:
    """Serve the floor: py-amqp, direct reply-to, the array's own bytes."""
    connection, channel = raw_channel(broker_url)
    channel.queue_declare(f"raw.{run}", auto_delete=True, durable=False)
    channel.basic_qos(0, 200, False)

    def answer(message: Any) -> None:
        observation = np.frombuffer(message.body, "f4").reshape(32, 4)
        body = (observation @ WEIGHTS).argmax(-1).tobytes()
        reply = amqp.Message(body, correlation_id=message.properties["correlation_id"])
        channel.basic_publish(reply, routing_key=message.properties["reply_to"])

    channel.basic_consume(f"raw.{run}", callback=answer, no_ack=True)
    print("ready", flush=True)
    while True:
        connection.drain_events()


def raw_channel(broker_url: str) -> tuple[Any, Any]:
    """Return a py-amqp connection and channel."""
    from kombu.utils.url import parse_url

    parts = parse_url(broker_url)
    connection = amqp.Connection(
        f"{parts['hostname']}:{parts['port']}", parts["userid"], parts["password"], virtual_host=parts["virtual_host"]
    )
    connection.connect()
    return connection, connection.channel()


def serve(kind: str, broker_url: str, redis_url: str, run: str) -> None:
    """Run one serving process until it is told to stop."""
    if kind == "raw":
        serve_raw(broker_url, run)
    elif kind == "celery":
        app = stock_celery(broker_url, run)
        from celery.signals import worker_ready

        worker_ready.connect(lambda **_: print("ready", flush=True), weak=False)
        app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR", "--without-gossip", "--without-mingle"])
    else:
        topology = Topology(run)
        app = create_app(topology, broker_url, redis_url)
        rate = float(os.environ.get("EVENT_RATE", "0"))
        actor: Actor = Actor()
        if kind == "warren-timed":
            actor = TimedActor()
        serving = Serving(app, topology, [actor], "bench", log_level="ERROR", event_rate=rate)
        if kind == "warren-timed":
            actor.receiver = app.warren_receiver = TimedLoop(app, topology, [actor], serving.tasks)
        serving.run(on_ready=lambda: print("ready", flush=True))


@contextlib.contextmanager
def served(kind: str, broker_url: str, redis_url: str, run: str) -> Iterator[subprocess.Popen[str]]:
    """Start a serving process of `kind`; yield it once it is ready."""
    command = [sys.executable, "-m", "benchmarks.calls.peers", kind, broker_url, redis_url, run]
    with started(command) as process:
        yield process


@contextlib.contextmanager
def started(command: list[str], ends_with_input: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Start a process and wait until it prints "ready"; one thread of linear algebra, since all share the cores."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        while "ready" not in (line := process.stdout.readline()):
            if not line:
                raise RuntimeError(f"{' '.join(command[:3])} ended with status {process.wait()}")
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # Ray's process then ends by itself, and ends what it started
        if not ends_with_input:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


class Peer:
    """The measurement of one peer: sequential calls, IN_FLIGHT at a time, and all sent before the first wait."""

    def call(self) -> Any:
        """Make one call; return its answer."""
        raise NotImplementedError

    def sync(self, number: int) -> list[float]:
        """Return the latency of each of `number` sequential calls, in s."""
        latencies = []
        for _ in range(number):
            begun = time.perf_counter()
            self.call()
            latencies.append(time.perf_counter() - begun)
        return latencies

    def pipelined(self, number: int) -> float:
        """Return calls/s with IN_FLIGHT calls under way."""
        raise NotImplementedError

    def submitted(self, number: int) -> float:
        """Return calls/s of calls all sent before the first wait, until the last has ended."""
        raise NotImplementedError


class WarrenPeer(Peer):
    """Warren's Solver."""

    def __init__(self, broker_url: str, redis_url: str, run: str) -> None:
        topology = Topology(run)
        self.solver = Solver(create_app(topology, broker_url, redis_url), topology)

    def call(self) -> Any:
        return self.solver.call("actor.infer", OBSERVATION)

    def pipelined(self, number: int) -> float:
        begun = time.perf_counter()
        for _ in self.solver.map("actor.infer", (OBSERVATION for _ in range(number)), IN_FLIGHT):
            pass
        return number / (time.perf_counter() - begun)

    def submitted(self, number: int) -> float:
        begun = time.perf_counter()
        for handle in [self.solver.send("actor.push", OBSERVATION) for _ in range(number)]:
            handle.result()
        return number / (time.perf_counter() - begun)


class CeleryPeer(Peer):
    """Stock Celery: solo pool, results as messages."""

    def __init__(self, broker_url: str, redis_url: str, run: str) -> None:
        self.infer = stock_celery(broker_url, run).tasks["infer"]

    def call(self) -> Any:
        return self.infer.delay(OBSERVATION).get(timeout=30)

    def pipelined(self, number: int) -> float:
        flying: deque[Any] = deque()
        begun = time.perf_counter()
        for _ in range(number):
            flying.append(self.infer.delay(OBSERVATION))
            if len(flying) >= IN_FLIGHT:
                flying.popleft().get(timeout=30)
        while flying:
            flying.popleft().get(timeout=30)
        return number / (time.perf_counter() - begun)

    def submitted(self, number: int) -> float:
        begun = time.perf_counter()
        for result in [self.infer.delay(OBSERVATION) for _ in range(number)]:
            result.get(timeout=60)
        return number / (time.perf_counter() - begun)


class RawPeer(Peer):
    """py-amqp with nothing else: the floor."""

    # Its publish also reads, so its handlers nest: with thousands in flight the server would run out of stack.
    MOST_IN_FLIGHT = 64

    def __init__(self, broker_url: str, redis_url: str, run: str) -> None:
        self.queue, self.got = f"raw.{run}", list[Any]()
        self.connection, self.channel = raw_channel(broker_url)
        self.channel.basic_consume("amq.rabbitmq.reply-to", callback=self._note, no_ack=True)

    def _note(self, message: Any) -> None:
        self.got.append(np.frombuffer(message.body, "i8"))

    def _send(self) -> None:
        message = amqp.Message(OBSERVATION.tobytes(), correlation_id="x", reply_to="amq.rabbitmq.reply-to")
        self.channel.basic_publish(message, routing_key=self.queue)

    def _wait(self) -> None:
        while not self.got:
            self.connection.drain_events(timeout=30)

    def call(self) -> Any:
        self._send()
        self._wait()
        return self.got.pop()

    def pipelined(self, number: int, in_flight: int = IN_FLIGHT) -> float:
        begun, flying, done = time.perf_counter(), 0, 0
        while done < number:
            while flying < in_flight and done + flying < number:
                self._send()
                flying += 1
            self._wait()
            flying, done = flying - len(self.got), done + len(self.got)
            self.got.clear()
        return number / (time.perf_counter() - begun)

    def submitted(self, number: int) -> float:
        return self.pipelined(number, self.MOST_IN_FLIGHT)


class RayPeer(Peer):
    """Ray's actor, in a process with the Python of its own environment."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def _ask(self, what: str, number: int) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{what} {number}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def sync(self, number: int) -> list[float]:
        latencies: list[float] = self._ask("sync", number)
        return latencies

    def pipelined(self, number: int) -> float:
        return float(self._ask("pipelined", number))

    def submitted(self, number: int) -> float:
        return float(self._ask("submitted", number))


@contextlib.contextmanager
def all_peers(broker_url: str, redis_url: str, run: str, ray_python: str | None) -> Iterator[dict[str, Peer]]:
    """Yield every peer, served and ready; Ray if there is a Python that has it."""
    kinds: dict[str, type[Any]] = {"raw": RawPeer, "warren": WarrenPeer, "celery": CeleryPeer}
    with contextlib.ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name, kind in kinds.items():
            stack.enter_context(served(name, broker_url, redis_url, run))
            peers[name] = kind(broker_url, redis_url, run)
        if ray_python:
            command = [ray_python, str(Path(__file__).parents[1] / "foreign" / "ray_peer.py")]
            peers["ray"] = RayPeer(stack.enter_context(started(command, ends_with_input=True)))
        yield peers


if __name__ == "__main__":
    serve(*sys.argv[1:5])
