"""Tests that a silent rank on a busy machine is not dead while its neighbours see its process run."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import redis
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
