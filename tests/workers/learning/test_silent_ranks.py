"""A rank that says nothing, since its machine is busy, is not dead while its neighbours see its process run."""

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


def beats_seen(rank: Membership, by: Membership) -> bool:
    """Beat once for a rank; return whether the other one has seen a beat of it."""
    rank._beat()
    return rank.token in by._living


def test_a_silent_rank_of_this_machine_lives_while_its_process_runs(
    redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT", 0.2)
    monkeypatch.setattr(module, "BEAT_EVERY", 0.02)
    client, beats = redis.Redis.from_url(redis_url), f"{run_name}:beats"
    first, silent, far = (Membership(client, f"{run_name}:", learner, "torch", "::1") for learner in range(3))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    silent._me = replace(silent._me, process=process.pid)
    far._me = replace(far._me, machine="another", process=process.pid)
    try:
        first.start()
        until(lambda: beats_seen(silent, first))  # silent from here on
        until(lambda: beats_seen(far, first))
        until(lambda: far.token not in first._living)
        assert silent.token in first._living and client.zscore(beats, silent.token) is not None
        process.send_signal(signal.SIGSTOP)
        until(lambda: silent.token not in first._living)
        process.send_signal(signal.SIGCONT)
        until(lambda: beats_seen(silent, first))
        process.kill()
        until(lambda: silent.token not in first._living)
    finally:
        process.kill()
        process.wait()
        first.leave()
