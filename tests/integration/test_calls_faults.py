"""Tests of calls under faults: workers killed or stopped, the broker restarted, connections cut."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections import Counter
from typing import Any

from support import brokers
from support.calling import Calling
from support.waiting import PATIENCE, until

from tasks.client.call_table import CallTable
from tasks.solver import Solver
from warren.errors import BrokerError, CallError, NobodyServing, WorkerLost


def outcome_of(handle: Any) -> str:
    try:
        handle.result()
        return "answered"
    except WorkerLost:
        return "lost"


def test_a_thousand_calls_outlive_the_kill_of_one_of_two_workers(calling, monkeypatch):
    settled: Counter[str] = Counter()
    deliver = CallTable.delivered

    def count(self: CallTable, properties: bytes, body: bytes) -> bool:
        before = set(self._calls)
        taken = deliver(self, properties, body)
        settled.update(before - set(self._calls))
        return taken

    monkeypatch.setattr(CallTable, "delivered", count)
    victim, _ = calling.start(2)
    handles = [calling.solver.send("actor.touch_slowly", "killed", 0.002) for _ in range(1000)]
    handles[50].result()
    victim.send_signal(signal.SIGKILL)
    outcomes = Counter(outcome_of(handle) for handle in handles)
    assert outcomes["answered"] + outcomes["lost"] == 1000
    assert outcomes["answered"] >= 999  # all were resent to the remaining worker
    assert set(settled.values()) == {1}, "a call was answered twice"


def test_calls_that_must_not_run_twice_fail_with_worker_lost(calling):
    calling.start(2)
    handles = [calling.solver.send("actor.once", 0.02, f"once-{number}") for number in range(100)]
    handles.insert(50, calling.solver.send("actor.live_or_die_once", "deadly"))  # kills its worker
    outcomes = Counter(outcome_of(handle) for handle in handles)
    assert outcomes["answered"] + outcomes["lost"] == 101
    assert isinstance(handles[50].exception(), WorkerLost)
    assert max(calling.ran(key) for key in ("deadly", *(f"once-{number}" for number in range(100)))) == 1


def test_with_no_worker_left_every_call_fails_and_none_hangs(calling):
    (worker,) = calling.start(1)
    solver = Solver(calling.app, calling.topology, patience=2.0, deadline=60.0)
    solver.call("actor.add", 1)
    handles = [solver.send("actor.sleep", 0.05) for _ in range(100)]
    handles[0].result()
    worker.send_signal(signal.SIGKILL)
    failed = [handle.exception() for handle in handles]
    assert any(isinstance(error, WorkerLost) for error in failed)
    assert all(error is None or isinstance(error, (WorkerLost, NobodyServing)) for error in failed)


def test_a_worker_that_is_told_to_stop_loses_no_call_and_costs_none_a_retry(calling):
    first, _ = calling.start(2)
    handles = [calling.solver.send("actor.once", 0.02) for _ in range(200)]
    # The first must have run one: until then, results come in order, and its own hold up later ones.
    assert any(handle.result() == first.pid for handle in handles)
    first.send_signal(signal.SIGTERM)
    pids = {handle.result() for handle in handles}
    assert len(pids) == 2
    assert first.wait(timeout=PATIENCE) == 0


def test_a_started_worker_serves_soon_after_it_is_ready(calling):
    calling.start(1)
    first = calling.solver.call("actor.who")
    calling.start(1)
    until(lambda: calling.solver.call("actor.who") != first)


def test_calls_without_an_answer_outlive_the_kill_of_their_worker(calling):
    (worker,) = calling.start(1)
    for number in range(500):
        calling.solver.call("actor.push", "kept")
        if number == 250:
            worker.send_signal(signal.SIGKILL)
    assert calling.solver.flush(PATIENCE) == 0
    calling.start(1)
    until(lambda: calling.ran("kept") >= 500)


def test_a_connection_cut_from_outside_is_replaced_and_its_calls_are_sent_again(calling):
    calling.start(1)
    solver = calling.solver
    assert solver.call("actor.add", 1) == 2
    handles = [solver.send("actor.add", number) for number in range(100)]
    solver._client().link._stream._sock.shutdown(socket.SHUT_RDWR)
    assert [handle.result() for handle in handles] == list(range(1, 101))


def test_rabbitmq_restarted_under_load_is_a_pause_or_a_clear_error(own_servers, run_name, tmp_path):
    calling = Calling(own_servers.broker_url, own_servers.redis_url, run_name, tmp_path)
    try:
        calling.start(1)
        stop, answered, errors = threading.Event(), [0] * 4, []

        def load(index: int) -> None:
            while not stop.is_set():
                try:
                    assert calling.solver.call("actor.add", index) == index + 1
                    answered[index] += 1
                except (CallError, BrokerError) as error:
                    errors.append(error)

        threads = [threading.Thread(target=load, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: min(answered) > 50)
        brokers.control(own_servers, "stop_app")
        time.sleep(1.0)  # the outage
        brokers.control(own_servers, "start_app")
        before = list(answered)
        until(lambda: all(now > then + 50 for now, then in zip(answered, before, strict=True)))
        stop.set()
        for thread in threads:
            thread.join(timeout=PATIENCE)
        assert not any(thread.is_alive() for thread in threads)
        assert calling.processes[0].poll() is None
    finally:
        calling.close()


def test_calls_fail_with_the_brokers_memory_alarm_and_go_on_after_it(own_servers, run_name, tmp_path):
    calling = Calling(own_servers.broker_url, own_servers.redis_url, run_name, tmp_path)
    try:
        calling.start(1)
        solver = Solver(calling.app, calling.topology, patience=3.0, deadline=60.0)
        assert solver.call("actor.add", 1) == 2
        brokers.control(own_servers, "set_vm_memory_high_watermark", "0")
        try:
            # The broker reports the alarm to a connection that publishes; a call sent just before may pass.
            errors: list[Exception] = []
            # Such a call may or may not be answered: the alarm may block its worker before it answers.
            until(lambda: any("low on memory" in str(error) for error in errors) or errors.extend(failures(solver)))
            (error,) = failures(solver)
            assert isinstance(error, BrokerError) and "taken no messages for" in str(error)
        finally:
            brokers.control(own_servers, "set_vm_memory_high_watermark", "0.6")
        until(lambda: not failures(solver))
        assert solver.call("actor.add", 2) == 3
        solver.close()
    finally:
        calling.close()


def failures(solver: Solver) -> list[Exception]:
    """Call once; return its error in a list, or an empty list."""
    try:
        solver.call("actor.add", 1, deadline=10.0)
    except (CallError, BrokerError) as error:
        return [error]
    return []
