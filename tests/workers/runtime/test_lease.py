"""Tests of leases: one process holds the work, the next is told its holder, and a dead holder is not waited for."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import redis
from support.lease_holders import held_by_the_dead, held_elsewhere, taken_elsewhere
from support.waiting import PATIENCE, until

from warren.errors import ConfigurationError
from workers.runtime import lease as module
from workers.runtime.lease import Lease, held, living


def test_a_second_holder_is_refused_and_told_who_holds_it(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    hasty = Lease(client, f"{run_name}:", "learner of player main", seconds=0.5)
    first, second = (Lease(client, f"{run_name}:", "learner of player main", seconds=600.0) for _ in range(2))
    elsewhere = held_elsewhere(client, f"{run_name}:", "learner of player main")
    with pytest.raises(ConfigurationError, match="learner of player main: already held by process 77 on gpu-3; one"):
        hasty.take(threading.Event(), "one is enough")
    elsewhere.release()
    assert first.take(threading.Event())
    assert first.renew()
    assert not second.renew()
    first.release()
    assert second.take(threading.Event())
    assert not first.renew(), "another process has taken it"
    first.release()
    assert second.renew(), "only the holder can release it"


def test_a_lease_that_redis_lost_is_taken_again(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    lease = Lease(client, f"{run_name}:", "work")
    lease.take(threading.Event())
    client.delete(f"{run_name}:lease:work")
    assert lease.renew()
    assert client.exists(f"{run_name}:lease:work")


def test_a_holder_of_this_machine_that_was_killed_is_replaced_at_once(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    held_by_the_dead(client, f"{run_name}:", "work")
    assert Lease(client, f"{run_name}:", "work", seconds=600.0).take(threading.Event())


def test_a_held_lease_is_renewed_and_its_loss_is_reported(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    lease, ended, lost = Lease(client, f"{run_name}:", "keeper", seconds=1.0), threading.Event(), threading.Event()
    lease.take(ended)
    lease.hold(ended, lambda why: lost.set())
    assert not lost.wait(3.0), "three times as long as it lasts"
    taken_elsewhere(client, f"{run_name}:", "keeper")
    assert lost.wait(PATIENCE)
    ended.set()


def test_waiting_for_a_lease_ends_when_the_process_is_to_stop(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    stopping = threading.Event()
    stopping.set()
    held_elsewhere(client, f"{run_name}:", "work")
    assert not Lease(client, f"{run_name}:", "work", seconds=600.0).take(stopping)


def test_a_lease_is_held_until_its_holder_dies_or_gives_it_back(redis_url: str, run_name: str) -> None:
    client, prefix = redis.Redis.from_url(redis_url), f"{run_name}:"
    lease = Lease(client, prefix, "work")
    assert not held(client, prefix, "work")
    lease.take(threading.Event())
    assert held(client, prefix, "work"), "it is held, though its own process asks"
    lease.release()
    assert not held(client, prefix, "work")
    held_by_the_dead(client, prefix, "work").release()
    held_by_the_dead(client, prefix, "work")
    assert not held(client, prefix, "work")
    client.delete(f"{prefix}lease:work")
    held_elsewhere(client, prefix, "work", **{**json.loads(lease._me), "token": "x"})
    assert not held(client, prefix, "work"), "an earlier process of the same id"


def test_the_living_processes_of_a_run_are_those_with_a_held_lease(redis_url: str, run_name: str) -> None:
    client, prefix = redis.Redis.from_url(redis_url), f"{run_name}:"
    lease = Lease(client, prefix, "learner of player main")
    assert living(client, prefix) == []
    lease.take(threading.Event())
    held_by_the_dead(client, prefix, "learner 1")
    held_elsewhere(client, prefix, "actor 0")
    held_elsewhere(client, prefix, "later")
    client.set(f"{prefix}lease:later", b"\xff of another version")
    held_elsewhere(client, f"{run_name}-2:", "work")
    found = [str(holder) for holder in living(client, prefix)]
    assert found[:2] == ["actor 0 (process 77 on gpu-3)", "later (an unknown process)"]
    assert len(found) == 3 and found[2].startswith("learner of player main (process ")
    lease.release()
    assert len(living(client, prefix)) == 2


def test_living_processes_are_found_without_scanning_redis(redis_url: str, run_name: str) -> None:
    client, prefix = redis.Redis.from_url(redis_url), f"{run_name}:"
    for number in range(50):
        held_elsewhere(client, prefix, f"actor {number}")
    asked: list[str] = []
    execute = client.execute_command
    client.execute_command = lambda *given, **more: (asked.append(given[0]), execute(*given, **more))[1]  # type: ignore[method-assign]
    assert len(living(client, prefix)) == 50
    assert asked == ["ZRANGE", "MGET"]


def test_the_index_of_leases_forgets_those_that_ran_out_and_goes_with_the_last(redis_url: str, run_name: str) -> None:
    client, prefix, last = redis.Redis.from_url(redis_url), f"{run_name}:", f"{run_name}-2:"
    short, long = Lease(client, prefix, "short", seconds=0.3), Lease(client, prefix, "long", seconds=600.0)
    assert short.renew() and long.renew()
    until(lambda: not client.exists(f"{prefix}lease:short"))
    assert [holder.work for holder in living(client, prefix)] == ["long"]
    assert long.renew()
    assert client.zrange(f"{prefix}leases", 0, -1) == [b"long"]
    assert Lease(client, last, "short", seconds=0.3).renew() and Lease(client, last, "long", seconds=1.0).renew()
    until(lambda: not client.exists(f"{last}leases"))
    assert not client.exists(f"{last}lease:long")


def test_a_lease_is_waited_for_while_redis_is_away(run_name: str) -> None:
    nobody = redis.Redis(port=1, retry=None)
    stopping = threading.Event()
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(Lease(nobody, f"{run_name}:", "work").take(stopping)))
    thread.start()
    assert thread.is_alive()
    stopping.set()
    thread.join(30.0)
    assert taken == [False]


class Blocked:
    """A Redis of which every call hangs, as while its name is not resolved."""

    def __init__(self) -> None:
        self.asked, self.ended = threading.Event(), threading.Event()

    def eval(self, *_: Any) -> None:
        self.asked.set()
        self.ended.wait(60.0)


def test_the_time_to_release_a_lease_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELEASED_WITHIN", 0.05)
    blocked = Blocked()
    Lease(blocked, "run:", "work").release()
    assert blocked.asked.wait(30.0)
    assert not blocked.ended.is_set()
    blocked.ended.set()


class Slow:
    """A Redis that answers a renewal only after `go`."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.renewing, self.released, self.go = threading.Event(), threading.Event(), threading.Event()

    def eval(self, script: str, _: int, key: str, index: str, holder: str, *more: Any) -> None:
        if script == module._RELEASE:
            self.holder = None
            self.released.set()
            return
        if self.holder is not None:
            self.renewing.set()
            assert self.go.wait(60.0)
        self.holder = holder


def test_a_renewal_under_way_does_not_take_a_released_lease_again() -> None:
    slow, ended, waits, lost = Slow(), threading.Event(), threading.Event(), list[str]()
    lease = Lease(slow, "run:", "work", seconds=0.02)
    assert lease.renew()
    lease.hold(ended, lost.append)
    renews = lease._renewing
    assert renews is not None
    join = renews.join
    renews.join = lambda timeout=None: (waits.set(), join(timeout))[1]  # type: ignore[method-assign]
    assert slow.renewing.wait(60.0)
    ended.set()
    releases = threading.Thread(target=lease.release)
    releases.start()
    until(lambda: waits.is_set() or slow.released.is_set())
    slow.go.set()
    join(60.0)
    assert slow.released.wait(60.0)
    releases.join(60.0)
    assert slow.holder is None and lost == []
