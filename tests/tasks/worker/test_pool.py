"""Tests of the worker pool on real brokers: tasks run in one thread, all other work in the event loop."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery.worker import state as worker_state
from support.obedient import ObedientWorker, close_connections
from support.waiting import PATIENCE, until

from tasks.worker.pool import ENDED_BY_A_TASK, OneThreadPool, stop_worker
from workers.servers import Servers


@pytest.fixture(params=["rabbitmq", "embedded"])
def worker(request: pytest.FixtureRequest, tmp_path: Path, run_name: str) -> Iterator[ObedientWorker]:
    servers: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    with ObedientWorker(run_name, servers.broker_url, servers.redis_url, tmp_path / "worker.log") as worker:
        yield worker


def test_tasks_run_one_at_a_time_in_order_and_the_event_loop_acknowledges_them(worker: ObedientWorker) -> None:
    for value in (0.10, 0.05, 0.02, 0.01):
        worker.do("sleep", value, ignore_result=True)
    worker.noted("acknowledged", times=4)
    steps = [(kind, value) for kind, value, _ in worker.notes("began", "ended")]
    assert steps == [(kind, value) for value in (0.10, 0.05, 0.02, 0.01) for kind in ("began", "ended")]
    assert {thread for _, _, thread in worker.notes("began", "ended")} == {"tasks"}
    assert {thread for _, _, thread in worker.notes("acknowledged")} == {"MainThread"}


def test_a_warm_stop_finishes_and_acknowledges_the_running_task(worker: ObedientWorker) -> None:
    result = worker.do("sleep", 1.5)
    worker.noted("began", 1.5)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE) == 0, worker.log.read_text()
    assert [kind for kind, *_ in worker.notes("ended", "acknowledged")] == ["ended", "acknowledged"]
    assert result.get(timeout=PATIENCE) == 1.5


def test_a_worker_that_has_nothing_to_do_stops_when_told(servers: Servers, tmp_path: Path, run_name: str) -> None:
    with ObedientWorker(run_name, servers.broker_url, servers.redis_url, tmp_path / "log") as worker:
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(PATIENCE) == 0


def test_pool_passes_signals_on_to_earlier_listeners() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    before = signal.set_wakeup_fd(writing)
    try:
        pool = OneThreadPool(1)
        pool.start()
        os.kill(os.getpid(), signal.SIGUSR1)
        pool.wake()
        pool.stop()
        assert os.read(reading, 16) == bytes([signal.SIGUSR1])
        assert signal.set_wakeup_fd(before) == writing
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGUSR1, handler)
        os.close(reading)
        os.close(writing)


def test_a_busy_worker_answers_remote_control(worker: ObedientWorker) -> None:
    worker.do("wait", "busy", ignore_result=True)
    worker.noted("began", "busy")
    node = [f"obedient@{worker.topology.run}"]
    with worker.app.connection_for_write() as connection:  # another test may have cut the connection of the app's pool
        asked = {"timeout": PATIENCE, "destination": node, "connection": connection}
        assert worker.app.control.ping(**asked) == [{node[0]: {"ok": "pong"}}]
        active = worker.app.control.inspect(**asked).active()
    worker.let_go()
    assert [task["name"] for tasks in active.values() for task in tasks] == ["actor.rollout"]


def test_a_busy_worker_keeps_sending_heartbeats(servers: Servers, tmp_path: Path, run_name: str) -> None:
    # RabbitMQ drops a peer that is silent for two heartbeats; a busy machine may stall one for some seconds.
    with ObedientWorker(run_name, servers.broker_url, servers.redis_url, tmp_path / "log", heartbeat=6) as worker:
        result = worker.do("wait", "busy")
        worker.noted("began", "busy")
        worker.noted("heartbeat", times=len(worker.notes("heartbeat")) + 2)
        worker.let_go()
        assert result.get(timeout=PATIENCE) == "busy"
        worker.noted("acknowledged")
        assert len(worker.notes("began")) == 1
        assert "Connection to broker lost" not in worker.log.read_text()


def test_a_cold_stop_requeues_unacknowledged_tasks(
    servers: Servers, tmp_path: Path, run_name: str, rabbitmqctl: Callable[..., list[str]]
) -> None:
    with ObedientWorker(run_name, servers.broker_url, servers.redis_url, tmp_path / "log") as worker:
        for value in (600, 601, 602):
            worker.do("sleep", value, ignore_result=True)
        worker.noted("began", 600)
        worker.process.send_signal(signal.SIGQUIT)
        worker.process.wait(PATIENCE)  # it does not wait for the task
        name = worker.topology.actor_queue().name

        def ready() -> bool:
            lines = (line.split("\t") for line in rabbitmqctl("list_queues", "name", "messages_ready"))
            return dict(lines)[name] == "3"

        until(ready, "the return of three messages")


def test_a_worker_goes_on_after_its_connection_was_lost_in_mid_task(
    servers: Servers, tmp_path: Path, run_name: str
) -> None:
    with ObedientWorker(run_name, servers.broker_url, servers.redis_url, tmp_path / "log") as worker:
        worker.do("wait", "held", ignore_result=True)
        worker.noted("began", "held")
        close_connections(servers)
        worker.let_go()
        # The task can no longer be acknowledged, so it is redelivered: late acks mean at least once.
        worker.noted("ended", "held", times=2)
        assert worker.do("return", "after").get(timeout=PATIENCE) == "after"
        worker.noted("acknowledged", times=2)


def test_a_signal_and_a_stop_wake_the_event_loop_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a wake-up the loop sleeps for up to a second, even after the signal's handler has run."""
    monkeypatch.setattr(worker_state, "should_stop", None)
    pool = OneThreadPool(limit=1)
    pool.on_start()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        for wake in (lambda: signal.raise_signal(signal.SIGUSR1), stop_worker):
            wake()
            assert select.select([pool._reader], [], [], PATIENCE)[0]
            pool._drain()
    finally:
        signal.signal(signal.SIGUSR1, before)
        pool.on_stop()
    assert worker_state.should_stop == 0 and signal.set_wakeup_fd(-1) == -1


def test_an_error_of_a_callback_reaches_no_other_task() -> None:
    pool = OneThreadPool(1)
    pool.start()
    seen = []

    def fails() -> None:
        raise MemoryError("outside its own code")

    pool.on_apply(fails, error_callback=seen.append)
    pool.on_apply(lambda: "well", callback=seen.append)

    def handed_back() -> bool:
        pool._drain()
        return len(seen) == 2

    until(handed_back)
    pool.stop()
    assert [type(item).__name__ for item in seen] == ["ExceptionInfo", "str"]
    assert "outside its own code" in str(seen[0].exception)


def started_elsewhere() -> OneThreadPool:
    """Return a pool started by another thread: it handles no signals, so any thread may stop it."""
    pool = OneThreadPool(1)
    starting = threading.Thread(target=pool.start)
    starting.start()
    starting.join()
    return pool


def test_a_pool_stopped_by_another_thread_keeps_its_signal_descriptor() -> None:
    pool = OneThreadPool(1)
    pool.start()
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    stopping.join(PATIENCE)
    listening = signal.set_wakeup_fd(-1)
    os.fstat(listening)  # raises OSError if it is closed
    pool.stop()
    assert pool._writer.fileno() == -1 and signal.set_wakeup_fd(-1) == -1


def test_a_warm_stop_waits_for_futures_of_the_event_loops_jobs() -> None:
    pool = started_elsewhere()
    done, seen = Future[None](), list[str]()
    pool.once(done, lambda: seen.append("acknowledged"))
    pool._drain()
    assert not seen
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    stopping.join(0.2)
    assert stopping.is_alive()
    done.set_result(None)
    stopping.join(PATIENCE)
    assert seen == ["acknowledged"]


def test_a_warm_stop_runs_no_task_that_waits_behind_the_running_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = started_elsewhere()
    seen: list[str] = []
    running, told, go = threading.Event(), threading.Event(), threading.Event()

    def task(name: str) -> str:
        running.set()
        assert go.wait(PATIENCE)
        return name

    for name in ("running", "waiting", "waiting too"):
        pool.on_apply(task, (name,), callback=seen.append)
    assert running.wait(PATIENCE)
    jobs = pool._jobs
    put = lambda job: (jobs.put(job), told.set())  # noqa: E731
    monkeypatch.setattr(pool, "_jobs", SimpleNamespace(put=put, get=jobs.get, get_nowait=jobs.get_nowait))
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    assert told.wait(PATIENCE)  # the pool's end is queued once all waiting jobs were removed
    go.set()
    stopping.join(PATIENCE)
    assert seen == ["running"]


def test_sys_exit_in_a_task_ends_its_worker_without_an_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_state, "should_stop", None)
    pool = OneThreadPool(1)
    pool.start()
    ended: list[str] = []
    pool.apply_async(sys.exit, (3,), callback=lambda _: ended.append("callback"), error_callback=ended.append)
    pool.apply_async(ended.append, ("the next task",))
    pool._thread.join(PATIENCE)
    assert not pool._thread.is_alive() and worker_state.should_stop == ENDED_BY_A_TASK
    pool.stop()
    assert ended == []
