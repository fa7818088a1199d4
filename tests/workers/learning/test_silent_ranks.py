"""Tests that a silent rank on a busy machine is not dead while its neighbours see its process run."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import redis
from support.contended import Contended
from support.waiting import until

from workers.learning.allreduce import membership as module
from workers.learning.allreduce.membership import Membership


def sees(rank: Membership, *others: Membership) -> bool:
    """Beat for `rank`; return whether it sees all `others` alive. No thread beats: a busy machine may delay it."""
    rank._beat()
    return all(other.token in rank._living for other in others)


def beat_seen(by: Membership, *ranks: Membership) -> bool:
    """Beat once for each of `ranks`; return whether `by` sees them all alive."""
    for rank in ranks:
        rank._beat()
    return sees(by, *ranks)


def test_a_silent_rank_of_this_machine_lives_while_its_process_runs(
    redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT", 0.2)
    client, beats = redis.Redis.from_url(redis_url), f"{run_name}:beats"
    first, silent, far = (Membership(client, f"{run_name}:", learner, "torch", "::1") for learner in range(3))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    silent._me = replace(silent._me, process=process.pid)
    far._me = replace(far._me, machine="another", process=process.pid)
    try:
        until(lambda: beat_seen(first, silent, far))  # both silent from here on
        until(lambda: not sees(first, far))
        assert silent.token in first._living and client.zscore(beats, silent.token) is not None
        process.send_signal(signal.SIGSTOP)
        until(lambda: not sees(first, silent))
        process.send_signal(signal.SIGCONT)
        until(lambda: beat_seen(first, silent))
        process.kill()
        until(lambda: not sees(first, silent))
    finally:
        process.kill()
        process.wait()
        first.leave()


def test_a_heartbeat_under_way_does_not_bring_back_a_rank_that_leaves(redis_url: str, run_name: str) -> None:
    client: Any = redis.Redis.from_url(redis_url)
    first, leaving = (Membership(client, f"{run_name}:", learner, "torch", "::1") for learner in range(2))
    on_its_way, arrives, lock = threading.Event(), threading.Event(), Contended()

    class Slow:
        pipeline = client.pipeline

        def eval(self, *given: Any) -> Any:
            on_its_way.set()
            assert arrives.wait(60.0)
            return client.eval(*given)

    assert beat_seen(first, leaving)
    leaving._redis, leaving._lock = Slow(), lock  # type: ignore[assignment]
    with ThreadPoolExecutor(2) as threads:
        beat = threads.submit(leaving._beat)
        assert on_its_way.wait(60.0)
        left = threads.submit(leaving.leave)
        until(lambda: left.done() or lock.came.is_set())
        arrives.set()
        left.result(60.0)
        beat.result(60.0)
    assert not sees(first, leaving)
    first.leave()
