"""Test of a Redis that hangs for longer than its clients' timeout: all of them go on once it does."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from support.calling import Calling
from support.own_redis import OwnRedis
from support.training_run import TrainingRun

from workers.servers import Servers

HANGS = 8.0  # s; clients wait 5 s for an answer


@pytest.mark.slow
def test_calls_and_a_gathered_run_outlive_a_redis_that_hangs(servers: Servers, tmp_path: Path, run_name: str) -> None:
    store = OwnRedis(tmp_path / "redis")
    go_on = threading.Timer(HANGS, store.process.send_signal, (signal.SIGCONT,))
    calling = Calling(servers.broker_url, store.url, run_name, tmp_path, patience=100.0)
    try:
        calling.start(1)
        assert calling.solver.call("actor.add", 1) == 2
        urls = {"broker_url": servers.broker_url, "redis_url": store.url}
        with TrainingRun(tmp_path, "env.goal=null", "total_steps=1000000000", "round_timeout=30", **urls) as run:
            run.after_updates(3)
            store.process.send_signal(signal.SIGSTOP)
            # These need no Redis: it stays stopped until the timer ends, which starts after them.
            calls = [calling.solver.send("actor.add", number) for number in range(100)]
            assert [call.result() for call in calls] == list(range(1, 101))
            go_on.start()
            waiting = [calling.solver.send("actor.once", 0.0) for _ in range(10)]  # first calls: looked up in Redis
            assert all(call.result() for call in waiting)
            go_on.join()
            run.after_updates(3)
            run.process.send_signal(signal.SIGINT)
            run.wait()
        run.account()
        assert " ended with status " not in run.output and not run.tracebacks(), run.output
    finally:
        go_on.cancel()
        store.process.send_signal(signal.SIGCONT)
        calling.close()
        store.kill()
