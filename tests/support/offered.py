"""`python offered.py BROKER REDIS RUN NAME`: a worker process of the services that tests call."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time

import numpy as np
import redis
from celery.exceptions import Ignore, Reject, Retry, WorkerLostError

from tasks.app import create_app
from tasks.retrying import RetryOn
from tasks.service import Worker, event_handler, service
from tasks.topology import Topology
from tasks.worker import celery_async, consumer_loop
from tasks.worker.server import Serving

WEIGHTS = np.arange(256, dtype=np.float32).reshape(4, 64) % 7


class Actor(Worker):
    def __init__(self, store: redis.Redis, prefix: str) -> None:
        super().__init__()
        self.store, self.prefix = store, prefix
        self.received: list[int] = []
        self.newest: list[int] = []
        self.areceived: list[int] = []
        self.anewest: list[int] = []

    @service
    def infer(self, observation: np.ndarray) -> np.ndarray:
        return (observation @ WEIGHTS).argmax(-1)

    @service(response=True, batch=64)
    def policy_eval(self, observations: list[np.ndarray]) -> list[np.ndarray]:
        actions = (np.concatenate(observations) @ WEIGHTS).argmax(-1)
        return np.split(actions, np.cumsum([len(one) for one in observations])[:-1])

    @service
    def add(self, a: int, b: int = 1, *, scale: int = 1) -> int:
        return (a + b) * scale

    @service
    def who(self) -> int:
        return os.getpid()

    @service
    def fail(self, message: str) -> None:
        raise ValueError(message)

    @service(batch=8)
    def halves(self, numbers: list[int]) -> list[float | Exception]:
        return [ValueError(f"{n} is odd") if n % 2 else n / 2 for n in numbers]

    @service(batch=8)
    def inverses(self, numbers: list[int]) -> list[float]:
        return [1 / n for n in numbers]

    @service(batch=8, isolate=False)
    def wrong(self, numbers: list[int]) -> list[int]:
        return [*numbers, 0]

    @service(batch=3, gather="exactly")
    def trio(self, numbers: list[int]) -> list[tuple[int, ...]]:
        return [tuple(sorted(numbers))] * len(numbers)

    @service(batch=100, gather="exactly", wait=0.3)
    def crowd(self, numbers: list[int]) -> list[int]:
        return [len(numbers)] * len(numbers)

    @service
    def sleep(self, seconds: float) -> int:
        time.sleep(seconds)
        return os.getpid()

    @service
    def hold(self, key: str) -> int:
        """Keep this worker busy until the key is released."""
        self.store.incr(f"{self.prefix}ran:{key}")
        while not self.store.exists(f"{self.prefix}release:{key}"):
            time.sleep(0.02)
        return os.getpid()

    @service
    def ran(self, key: str) -> int:
        return int(self.store.incr(f"{self.prefix}ran:{key}"))

    @service
    def touch_slowly(self, key: str, seconds: float) -> int:
        self.store.incr(f"{self.prefix}ran:{key}")
        time.sleep(seconds)
        return os.getpid()

    @service(retries=0)
    def once(self, seconds: float, key: str = "") -> int:
        if key:
            self.store.incr(f"{self.prefix}ran:{key}")
        time.sleep(seconds)
        return os.getpid()

    @service(retries=0)
    def live_or_die_once(self, key: str) -> str:
        return self.live_or_die(key)

    @service
    def live_or_die(self, key: str) -> str:
        self.store.incr(f"{self.prefix}ran:{key}")
        if key == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        return key

    @service
    def deadly(self) -> None:
        os._exit(9)

    @service
    def unsendable(self) -> object:
        return object()

    @service(response=False)
    def push(self, key: str) -> None:
        self.store.incr(f"{self.prefix}ran:{key}")

    @service(response=False)
    def push_deadly(self, key: str) -> None:
        self.store.incr(f"{self.prefix}ran:{key}")
        os.kill(os.getpid(), signal.SIGKILL)

    @service(response=False, batch=16)
    def push_some(self, keys: list[str]) -> list[None]:
        for key in keys:
            self.store.incr(f"{self.prefix}ran:{key}")
        if "deadly" in keys:
            os.kill(os.getpid(), signal.SIGKILL)
        return [None] * len(keys)

    @service(response=False, retries=0)
    def push_deadly_once(self, key: str) -> None:
        self.push_deadly(key)

    @service(retry_on=RetryOn(ConnectionError, backoff=0.05))
    def flaky(self, key: str, works_at: int) -> int:
        times = int(self.store.incr(f"{self.prefix}ran:{key}"))
        if times < works_at:
            raise ConnectionResetError(f"{key} is away")
        return times

    @service(response=False, delays=True)
    def push_later(self, key: str) -> None:
        self.ran(key)
        self.store.rpush(f"{self.prefix}pushed", key)

    @service(priorities=5)
    def ranked(self, what: str) -> int:
        return int(self.store.rpush(f"{self.prefix}ranked", what))

    @service(response=False, priorities=5)
    def push_ranked(self, what: str) -> None:
        self.ranked(what)

    @service(time_limit=0.2)
    def endless(self) -> None:
        while True:
            pass

    @service(time_limit=0.2, hard_time_limit=0.5, retries=1)
    def stuck(self, key: str) -> None:
        self.store.incr(f"{self.prefix}ran:{key}")
        time.sleep(600.0)

    @service(retry_on=RetryOn(ConnectionError, backoff=0.05))
    async def flaky_async(self, key: str, works_at: int) -> int:
        return self.flaky(key, works_at)

    @service(response=False, retry_on=RetryOn(ConnectionError, backoff=0.05))
    def push_flaky(self, key: str, works_at: int) -> None:
        self.flaky(key, works_at)

    @service(response=False, bound=20)
    def push_slowly(self, key: str) -> None:
        time.sleep(0.002)
        self.store.incr(f"{self.prefix}ran:{key}")

    @service(response=False)
    def push_badly(self, message: str) -> None:
        raise ValueError(message)

    @service
    def trouble(self, how: str) -> int:
        times = int(self.store.incr(f"{self.prefix}ran:{how}"))
        if how == "requeue" and times == 1:
            raise Reject("once more", requeue=True)
        errors: dict[str, BaseException] = {
            "memory": MemoryError("none"),
            "lost": WorkerLostError(),
            "retry": Retry("later"),
        }
        errors |= {"reject": Reject("no"), "ignore": Ignore(), "surrogate": ValueError("\udcff")}
        if how in errors:
            raise errors[how]
        if how == "cancelled":
            raise asyncio.CancelledError
        return times

    @service(concurrency=20)
    async def ahold(self, key: str) -> int:
        """Wait for the release of the key, while other calls run."""
        self.store.incr(f"{self.prefix}ran:{key}")
        try:
            while not self.store.exists(f"{self.prefix}release:{key}"):
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.store.incr(f"{self.prefix}ran:{key} cancelled")
            raise
        return os.getpid()

    @service(retries=0)
    async def ahold_once(self, key: str) -> int:
        return await self.ahold(key)

    @service(response=False, concurrency=20)
    async def apush(self, key: str) -> None:
        await self.ahold(key)

    @service(response=False)
    async def apush_deadly(self, key: str) -> None:
        await asyncio.sleep(0)
        self.push_deadly(key)

    @service(batch=8)
    async def ainverses(self, numbers: list[int]) -> list[float]:
        await asyncio.sleep(0)
        return [1 / n for n in numbers]

    @service
    async def atrouble(self, how: str) -> int:
        await asyncio.sleep(0)
        return self.trouble(how)

    @service
    def echo(self, value: object, how: str = "") -> object:
        """Return the value, or with how="array" a nested array."""
        return {"a": [1, {"b": WEIGHTS}]} if how == "array" else value

    @service
    def total(self, numbers: list[int]) -> int:
        return sum(numbers)

    @event_handler("counted", bound=100)
    def note(self, number: int) -> None:
        self.received.append(number)

    @event_handler("stated", latest=True)
    def note_newest(self, number: int) -> None:
        self.newest.append(number)

    @event_handler("acounted", bound=100)
    async def anote(self, number: int) -> None:
        """Record an event once events are released."""
        while not self.store.exists(f"{self.prefix}release:acounted"):
            await asyncio.sleep(0.02)
        self.areceived.append(number)

    @event_handler("acounted", latest=True)
    async def anote_newest(self, number: int) -> None:
        while not self.store.exists(f"{self.prefix}release:acounted"):
            await asyncio.sleep(0.02)
        self.anewest.append(number)

    @service
    def aevents_received(self) -> tuple[list[int], list[int]]:
        return self.areceived, self.anewest

    @service
    def events_received(self) -> tuple[list[int], list[int]]:
        return self.received, self.newest


def main() -> int:
    broker_url, redis_url, run, name = sys.argv[1:5]
    logging.basicConfig(level="WARNING", stream=sys.stderr)
    # Long enough for released calls to end, even if a busy machine stalls the test or this process for seconds.
    celery_async.FINISH_WITHIN = consumer_loop.FINISH_WITHIN = 8.0
    topology = Topology(run)
    app = create_app(topology, broker_url, redis_url)
    worker = Actor(redis.Redis.from_url(redis_url), topology.key_prefix)
    serving = Serving(app, topology, [worker], name, log_level="WARNING")
    return serving.run(on_ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    sys.exit(main())
