"""One process does the work, the next is told who, and a dead one is not waited for."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
import redis

from warren.errors import ConfigurationError
from workers.runtime.lease import Lease, held, living


def test_a_second_holder_is_refused_and_told_who_holds_it(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    first, second = (Lease(client, f"{run_name}:", "learner of player main", seconds=2.0) for _ in range(2))
    client.set(f"{run_name}:lease:learner of player main", json.dumps({"host": "gpu-3", "pid": 77, "token": "x"}))
    with pytest.raises(ConfigurationError, match="learner of player main: process 77 on gpu-3 is that already; one"):
        second.take(threading.Event(), "one is enough")
    client.delete(f"{run_name}:lease:learner of player main")
    assert first.take(threading.Event())
    assert first.renew()
    assert not second.renew()
    first.release()
    assert second.take(threading.Event())
    assert not first.renew(), "it was silent for too long"
    first.release()
    assert second.renew(), "only the holder gives it back"


def test_a_lease_that_redis_lost_is_taken_again(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    lease = Lease(client, f"{run_name}:", "work")
    lease.take(threading.Event())
    client.delete(f"{run_name}:lease:work")
    assert lease.renew()
    assert client.exists(f"{run_name}:lease:work")


def test_a_holder_of_this_machine_that_was_killed_is_replaced_at_once(redis_url: str, run_name: str) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    client = redis.Redis.from_url(redis_url)
    lease = Lease(client, f"{run_name}:", "work", seconds=600.0)
    holder = {**json.loads(lease._me), "pid": dead.pid, "token": "x"}
    client.set(f"{run_name}:lease:work", json.dumps(holder), px=600_000)
    assert lease.take(threading.Event())


def test_a_lease_that_is_held_is_renewed_and_its_loss_is_told(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    lease, ended, lost = Lease(client, f"{run_name}:", "keeper", seconds=1.0), threading.Event(), threading.Event()
    lease.take(ended)
    lease.hold(ended, lambda why: lost.set())
    assert not lost.wait(3.0), "three times as long as it lasts"
    client.set(f"{run_name}:lease:keeper", json.dumps({"host": "elsewhere", "pid": 1, "token": "x"}))
    assert lost.wait(30.0)
    ended.set()


def test_waiting_for_a_lease_ends_when_the_process_is_to_stop(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    stopping = threading.Event()
    stopping.set()
    client.set(f"{run_name}:lease:work", json.dumps({"host": "elsewhere", "pid": 1, "token": "x"}))
    assert not Lease(client, f"{run_name}:", "work", seconds=600.0).take(stopping)


def test_a_lease_is_held_until_its_holder_dies_or_gives_it_back(redis_url: str, run_name: str) -> None:
    client, prefix = redis.Redis.from_url(redis_url), f"{run_name}:"
    lease = Lease(client, prefix, "work")
    assert not held(client, prefix, "work")
    lease.take(threading.Event())
    assert held(client, prefix, "work"), "though its process asks"
    lease.release()
    assert not held(client, prefix, "work")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    client.set(f"{prefix}lease:work", json.dumps({**json.loads(lease._me), "pid": dead.pid, "token": "x"}))
    assert not held(client, prefix, "work")
    client.set(f"{prefix}lease:work", json.dumps({**json.loads(lease._me), "token": "x"}))
    assert not held(client, prefix, "work"), "an earlier process of the same id"


def test_the_living_of_a_run_are_those_whose_lease_is_held(redis_url: str, run_name: str) -> None:
    client, prefix = redis.Redis.from_url(redis_url), f"{run_name}:"
    lease = Lease(client, prefix, "learner of player main")
    assert living(client, prefix) == []
    lease.take(threading.Event())
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    client.set(f"{prefix}lease:learner 1", json.dumps({**json.loads(lease._me), "pid": dead.pid, "token": "x"}))
    client.set(f"{prefix}lease:actor 0", json.dumps({"host": "gpu-3", "pid": 77, "token": "x"}))
    client.set(f"{prefix}lease:later", b"\xff of another version")
    client.set(f"{run_name}-2:lease:work", json.dumps({"host": "gpu-3", "pid": 77, "token": "x"}))
    found = [str(holder) for holder in living(client, prefix)]
    assert found[:2] == ["actor 0 (process 77 on gpu-3)", "later (an unknown process)"]
    assert len(found) == 3 and found[2].startswith("learner of player main (process ")
    lease.release()
    assert len(living(client, prefix)) == 2
