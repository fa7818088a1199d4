"""Tests of calls from an event loop on a broker in memory: the loop never waits for the broker."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from support.claims import uninstall_claims
from support.in_memory import ADD, PUSH, TOPOLOGY, Directory, Kept, Service, app_of, declare, solver_of, take

from tasks.client.async_client import ONE_WAY_WINDOW
from tasks.client.rpc import Client
from tasks.codec import claim_check
from tasks.codec.claim_check import ClaimStore
from tasks.testing import InMemoryBroker
from warren.errors import BrokerError, ConfigurationError, NoSuchService


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


def add(one: int) -> int:
    return one + 1


def test_many_calls_of_one_loop_are_answered(broker):
    async def main() -> list[Any]:
        solver = solver_of(broker)
        return await asyncio.gather(*(solver.acall("actor.add", number) for number in range(200)))

    with Service(broker, ADD, add):
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == list(range(1, 201))


def test_the_loop_runs_on_while_a_connection_is_made(broker, monkeypatch):
    let_in, real = threading.Event(), broker.connect

    def connect() -> Any:
        assert let_in.wait(60.0), "the loop was held up"
        return real()

    async def main() -> Any:
        solver = solver_of(broker)
        await asyncio.get_running_loop().run_in_executor(None, solver._find, "actor.add")
        future = solver.asend("actor.add", 1)
        await asyncio.sleep(0)
        let_in.set()  # a blocked loop would never reach this line
        return await future

    with Service(broker, ADD, add):
        monkeypatch.setattr(broker, "connect", connect)
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == 2


def test_the_loop_runs_on_during_a_look_up_of_a_service(broker, monkeypatch):
    asked, answer = threading.Event(), threading.Event()

    async def main() -> Any:
        solver = solver_of(broker)
        solver._find("actor.add")
        future = solver.asend("actor.add", 1)
        while not asked.is_set():
            await asyncio.sleep(0.01)
        answer.set()
        service.append(Service(broker, ADD, add))
        return await future

    service: list[Service] = []
    declare(broker, ADD)
    real = broker.connect

    def connect() -> Any:
        link = real()

        def consumers(queue: str, until: float) -> int:
            asked.set()
            assert answer.wait(60.0), "the loop was held up"
            return 1

        monkeypatch.setattr(link, "consumers", consumers)
        return link

    monkeypatch.setattr(broker, "connect", connect)
    assert asyncio.run(asyncio.wait_for(main(), 60.0)) == 2
    service[0].close()


def test_calls_of_unknown_services_hold_up_no_other_call(broker, slow):
    """Nor do jobs that fill the loop's default executor, which belongs to its user."""

    async def main() -> bytes:
        turning = slow.watch()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        filled = loop.run_in_executor(None, go_on.wait, 60.0)
        solver = solver_of(broker, patience=60.0, claims=slow.claims)
        unknown = [solver.asend(f"actor.unknown_{number}") for number in range(100)]
        answer: bytes = await solver.acall("actor.add", LONG)
        assert not any(future.done() for future in unknown)
        for future in unknown:
            future.cancel()
        go_on.set()
        await filled
        turning.cancel()
        return answer

    go_on = threading.Event()
    with Service(broker, ADD, claims=slow.claims, function=lambda body: body + b"!"):
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == LONG + b"!"


def test_calls_of_one_unknown_service_share_its_look_up(broker):
    looks: list[str] = []

    async def main() -> list[Any]:
        solver = solver_of(broker, patience=0.2)
        find = solver._directory.find
        solver._directory.find = lambda name: (looks.append(name), find(name))[1]  # type: ignore[method-assign]
        calls = [solver.acall("actor.unknown") for _ in range(50)]
        return await asyncio.gather(*calls, return_exceptions=True)

    ended = asyncio.run(asyncio.wait_for(main(), 60.0))
    assert {type(error) for error in ended} == {NoSuchService}
    assert len(looks) < 50


def test_a_new_connection_is_watched_even_with_the_old_descriptor(broker, monkeypatch):
    monkeypatch.setattr(Client, "poll_every", 1000.0)  # only a socket in its selector wakes the loop

    async def main() -> list[Any]:
        solver = solver_of(broker)
        solver._find("actor.add")
        answers = [await solver.asend("actor.add", 1)]
        for number in (2, 3):
            broker.cut()
            answers.append(await solver.asend("actor.add", number))
        return answers

    with Service(broker, ADD, add):
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == [2, 3, 4]


def test_an_idle_loop_watches_a_broken_connection_no_longer(broker):
    """A heartbeat may find it broken; its descriptor stays readable, so that the loop would never wait again."""

    async def main() -> None:
        solver = solver_of(broker)
        assert await solver.acall("actor.add", 1) == 2
        (bridge,) = solver._bridges.values()
        while bridge._ticking:
            await asyncio.sleep(0.001)
        broker.cut()
        while bridge._client.link is not None or bridge._watched is not None:
            await asyncio.sleep(0.001)
        assert await solver.acall("actor.add", 2) == 3

    with Service(broker, ADD, lambda number: number + 1):
        asyncio.run(asyncio.wait_for(main(), 60.0))


def test_tending_that_meets_a_poll_of_the_loop_waits_for_it(broker):
    """Without that, a lost connection would stay lost until the loop's next look."""
    client = Client(app_of(broker), TOPOLOGY, Directory(ADD), 60.0, may_block=False)  # type: ignore[arg-type]
    met, lock = threading.Event(), client._reading

    class Watched:
        release = staticmethod(lock.release)

        @staticmethod
        def acquire(blocking: bool = True) -> bool:
            met.set()
            return lock.acquire(blocking)

    queue = declare(broker, ADD)
    client.submit(ADD, (1,), {}, None)
    client._reading = Watched()  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as threads:
        with lock:  # the loop polls
            tended = threads.submit(client.tend)
            assert met.wait(60.0)
        tended.result(60.0)
    assert client.link is not None and len(broker.waiting(queue)) == 1
    client._reading = lock
    client.close()


def test_a_call_sent_while_tending_ends_is_tended_afterwards(broker, monkeypatch):
    monkeypatch.setattr(Client, "poll_every", 1000.0)
    done, third_sent, real = threading.Event(), threading.Event(), Client.tend

    def tend(client: Client) -> None:
        real(client)
        done.set()
        assert third_sent.wait(60.0)  # the tending has done its work but not returned

    async def main() -> list[Any]:
        solver = solver_of(broker)
        solver._find("actor.add")
        first = await solver.asend("actor.add", 1)
        monkeypatch.setattr(Client, "tend", tend)
        broker.cut()
        second = solver.asend("actor.add", 2)  # its answer may be read only after this tending
        assert await asyncio.to_thread(done.wait, 60.0)
        broker.cut()
        third = solver.asend("actor.add", 3)
        third_sent.set()
        return [first, await second, await third]

    with Service(broker, ADD, add):
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == [2, 3, 4]


def test_one_way_calls_over_the_window_wait_for_the_broker(broker):
    queue = declare(broker, PUSH)  # one fits

    async def main() -> int:
        solver = solver_of(broker)
        solver._find("actor.push")
        futures = [solver.asend("actor.push", number) for number in range(ONE_WAY_WINDOW + 50)]
        most = 0
        taker = asyncio.get_running_loop().run_in_executor(None, take, broker, queue, len(futures))
        while not all(future.done() for future in futures):
            most = max(most, solver._local.bridge._client.unconfirmed)
            await asyncio.sleep(0.01)
        assert sorted(await taker) == list(range(ONE_WAY_WINDOW + 50))
        return most

    assert asyncio.run(asyncio.wait_for(main(), 120.0)) <= ONE_WAY_WINDOW


def test_an_amap_with_none_in_flight_is_refused(broker):
    async def main() -> None:
        async for _ in solver_of(broker).amap("actor.add", [1], in_flight=0):
            pass

    with pytest.raises(ConfigurationError, match="in_flight=0"):
        asyncio.run(main())


LONG = b"x" * 3_000_000


class SlowRedis(Kept):
    """A stand-in for Redis that refuses the loop's thread, and answers other threads only if the loop goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: set[int] = set()
        self.went_on = threading.Event()

    def _wait(self) -> None:
        assert threading.get_ident() not in self.loops, "the loop waits for Redis"
        if self.loops:
            self.went_on.clear()
            assert self.went_on.wait(60.0), "the loop is held up"

    def set(self, key: str, body: bytes, px: int | None = None, ex: int | None = None) -> None:
        self._wait()
        super().set(key, body, px, ex)

    def get(self, key: str) -> bytes | None:
        self._wait()
        return super().get(key)

    def unlink(self, key: str) -> None:
        self._wait()
        super().unlink(key)

    def watch(self) -> asyncio.Task[None]:
        """Refuse the current thread from now on; return a task that notes that its loop goes on."""

        async def turn() -> None:
            while True:
                self.went_on.set()
                await asyncio.sleep(0.001)

        self.loops.add(threading.get_ident())
        return asyncio.create_task(turn())


@pytest.fixture
def slow() -> Iterator[SlowRedis]:
    found: Any = SlowRedis()
    found.claims = claim_check.install(ClaimStore(found, f"{secrets.token_hex(4)}:claim:", ttl_seconds=60))
    yield found
    uninstall_claims(found.claims)


def test_the_loop_runs_on_while_long_bodies_pass_through_redis(broker, slow):
    async def main() -> list[Any]:
        turning = slow.watch()
        solver = solver_of(broker, claims=slow.claims)
        solver._find("actor.add")
        answers = await asyncio.gather(*(solver.acall("actor.add", LONG) for _ in range(3)))
        turning.cancel()
        return answers

    with Service(broker, ADD, claims=slow.claims, function=lambda body: body + b"!"):
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == [LONG + b"!"] * 3
    assert slow.stored == 6 and slow.bodies == {}, "bodies were left after the answers had been read"


def test_long_one_way_calls_keep_their_order(broker, slow):
    queue = declare(broker, PUSH)

    async def main() -> list[Any]:
        turning = slow.watch()
        solver = solver_of(broker, claims=slow.claims)
        solver._find("actor.push")
        bodies = [LONG, b"1", LONG, b"3"]
        taker = asyncio.get_running_loop().run_in_executor(None, take, broker, queue, len(bodies))
        await asyncio.gather(*(solver.asend("actor.push", body) for body in bodies))
        taken: list[Any] = await taker
        turning.cancel()
        return taken

    assert asyncio.run(asyncio.wait_for(main(), 60.0)) == [LONG, b"1", LONG, b"3"]


def test_a_call_that_is_cancelled_while_it_is_stored_is_not_sent_and_leaves_nothing(broker, slow):
    queue = declare(broker, ADD)

    async def main() -> None:
        solver = solver_of(broker, claims=slow.claims)
        solver._find("actor.add")
        slow.loops.add(threading.get_ident())
        future = solver.asend("actor.add", LONG)
        await asyncio.sleep(0)
        future.cancel()
        turning = slow.watch()
        while slow.bodies or not slow.stored:
            await asyncio.sleep(0.001)
        turning.cancel()

    asyncio.run(asyncio.wait_for(main(), 60.0))
    assert not broker.waiting(queue)


def test_a_body_that_cannot_be_stored_is_the_futures_error(broker, slow):
    async def main() -> None:
        turning = slow.watch()
        solver = solver_of(broker, claims=slow.claims)
        solver._find("actor.add")
        try:
            await solver.acall("actor.add", LONG)
        finally:
            turning.cancel()

    def away(key: str, body: bytes, px: int) -> None:
        raise redis.ConnectionError("away")

    slow.set = away
    with pytest.raises(BrokerError, match="Redis went away"):
        asyncio.run(asyncio.wait_for(main(), 60.0))


def test_a_cancelled_future_cancels_its_call(broker):
    declare(broker, ADD)

    async def main() -> list[str]:
        solver = solver_of(broker)
        solver._find("actor.add")
        future = solver.asend("actor.add", 1)
        await asyncio.sleep(0)
        future.cancel()
        while not solver.app.revoked:
            await asyncio.sleep(0.01)
        assert solver._local.bridge._client.under_way == 0
        return list(solver.app.revoked)

    assert len(asyncio.run(asyncio.wait_for(main(), 60.0))) == 1
