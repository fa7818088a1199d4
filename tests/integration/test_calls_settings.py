"""Tests of services' retries, time limits, priorities and delays, on RabbitMQ and on the embedded server."""

from __future__ import annotations

import asyncio

import pytest
from support.calling import Calling
from support.waiting import PATIENCE, until

from tasks.admin.cleanup import waiting
from tasks.admin.discovery import discover
from tasks.app.dead_letters import REASON
from tasks.worker.time_limits import ENDED
from warren.errors import ConfigurationError, RemoteFailure, WorkerLost


def test_a_call_runs_again_after_exceptions_that_its_service_retries(calling_either):
    solver = calling_either.solver
    assert solver.call("actor.flaky", "direct", 3) == 3
    assert solver.call("actor.flaky_async", "in a loop", 3) == 3
    with pytest.raises(RemoteFailure, match="for good is away") as caught:
        solver.call("actor.flaky", "for good", 99)
    assert caught.value.kind == "ConnectionResetError" and calling_either.ran("for good") == 4
    assert calling_either.app.send_task("actor.flaky", ("celery", 3)).get(timeout=PATIENCE) == 3
    solver.call("actor.push_flaky", "one-way", 3)
    until(lambda: calling_either.ran("one-way") == 3)
    assert solver.call("actor.add", 1) == 2


def test_a_one_way_call_that_has_spent_its_retries_is_a_dead_letter_and_counted(servers, run_name, tmp_path):
    calling = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        calling.start()
        calling.solver.call("actor.push_flaky", "gone", 99)
        with calling.app.connection_for_read() as connection:
            queue = calling.topology.dead_queue("actor")(connection.default_channel)
            until(lambda: queue.get(no_ack=False) is not None)
            connection.default_channel.basic_recover(requeue=True)
            letter = queue.get(no_ack=True)
        assert letter.headers[REASON] == "it failed 4 times, last with ConnectionResetError: gone is away"
        until(lambda: [one.retried for one in discover(calling.app) if one.service == "actor.push_flaky"] == [3])
    finally:
        calling.close()


def test_a_call_that_passes_its_time_limit_fails_and_the_worker_goes_on(calling_either):
    with pytest.raises(RemoteFailure, match=r"longer than its time limit of 0\.2 s") as caught:
        calling_either.solver.call("actor.endless")
    assert caught.value.kind == "warren.errors.TimeLimitExceeded"
    assert calling_either.solver.call("actor.add", 1) == 2


def test_a_call_over_its_hard_limit_ends_each_worker_up_to_its_retries(servers, run_name, tmp_path):
    calling = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        workers = calling.start(3)
        with pytest.raises(WorkerLost, match="2 workers died with this call"):
            calling.solver.call("actor.stuck", "stuck")
        until(lambda: sorted(str(worker.poll()) for worker in workers) == [str(ENDED), str(ENDED), "None"])
        assert calling.ran("stuck") == 2 and calling.solver.call("actor.add", 1) == 2
        logs = "".join((tmp_path / f"actor-{number}.log").read_text() for number in range(3))
        assert logs.count("actor.stuck has passed its hard time limit") == 2
    finally:
        calling.close()


def at_the_broker(calling: Calling, name: str) -> int:
    """Return how many calls of the service wait at the broker."""
    queue = calling.topology.service_queue(name, response=name == "actor.ranked", priorities=5)
    with calling.app.connection_for_read() as connection:
        return waiting(connection, queue)


@pytest.mark.parametrize("name", ["actor.ranked", "actor.push_ranked"])
def test_calls_of_a_higher_priority_run_first_though_they_were_sent_later(calling_either, name):
    solver, store = calling_either.solver, calling_either.solver._directory._redis
    busy = solver.send("actor.hold", "busy")
    until(lambda: calling_either.ran("busy") == 1)
    handles = []
    for what, view in (("plain", solver), ("high", solver.options(priority=4)), ("low", solver.options(priority=0))):
        handles += [view.send(name, f"{what} {number}") for number in range(5)]
    solver.call("actor.push", "sent after them")  # once the broker has it, it has them too
    assert solver.flush(PATIENCE) == 0
    until(lambda: at_the_broker(calling_either, name) == 0)  # otherwise the worker would choose among a part of them
    calling_either.release("busy")
    busy.result()
    [handle.result() for handle in handles]

    def order() -> list[str]:
        return [one.decode() for one in store.lrange(f"{calling_either.topology.key_prefix}ranked", 0, -1)]

    until(lambda: len(order()) == 15)
    first = [what for what in order() if what.startswith("high")]
    assert first == [f"high {number}" for number in range(5)]
    assert max(map(order().index, first)) == 4, order()


def test_a_priority_that_a_service_lacks_is_one_clear_error(calling_either):
    solver = calling_either.solver
    with pytest.raises(ConfigurationError, match=r"actor\.add has no priorities; mark it with @service"):
        solver.options(priority=1).call("actor.add", 1)
    with pytest.raises(ConfigurationError, match=r"priority=5: actor\.ranked has 0 \(the lowest\) to 4"):
        solver.options(priority=5).call("actor.ranked", "x")
    chord = solver.options(priority=4).gather([("actor.ranked", "in a chord")] * 2, then="actor.total")
    assert chord.get(timeout=PATIENCE) == 3


def pushed(calling: Calling) -> list[str]:
    found = calling.solver._directory._redis.lrange(f"{calling.topology.key_prefix}pushed", 0, -1)
    return [one.decode() for one in found]


def test_a_one_way_call_with_a_delay_runs_after_others_that_were_sent_later(calling_either):
    solver = calling_either.solver
    later = solver.options(delay=12.0, headers={"tenant": "a"})  # longer than a busy machine stalls this process
    later.call("actor.push_later", "called")
    assert list(later.map("actor.push_later", ["mapped"])) == [None]
    asyncio.run(later.acall("actor.push_later", "by a loop"))
    solver.call("actor.push_later", "at once")
    assert solver.flush(PATIENCE) == 0
    until(lambda: len(pushed(calling_either)) == 4)
    assert pushed(calling_either)[0] == "at once"
    assert sorted(pushed(calling_either)) == ["at once", "by a loop", "called", "mapped"]


def test_any_number_of_calls_wait_in_the_broker_whatever_becomes_of_the_worker(calling):
    calling.start()
    calling.solver.call("actor.push_later", "first")
    until(lambda: pushed(calling) == ["first"])
    later = calling.solver.options(delay=2.0)
    for number in range(200):
        later.call("actor.push_later", str(number))
    assert calling.solver.flush(PATIENCE) == 0
    calling.processes[0].kill()
    calling.start()
    until(lambda: set(pushed(calling)) == {"first", *map(str, range(200))})


def test_queues_of_delayed_calls_are_removed_with_their_run(servers, rabbitmqctl, run_name, tmp_path):
    calling = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        calling.start()
        calling.solver.options(delay=3600.0).call("actor.push_later", "in an hour")
        assert calling.solver.flush(PATIENCE) == 0
        prefix = f"warren.{run_name}"
        there = {f"{prefix}.delay.3600000.actor.push_later", f"{prefix}.due.actor.push_later"}
        until(lambda: there <= set(rabbitmqctl("list_queues", "name")))
    finally:
        calling.close()
    assert [name for name in rabbitmqctl("list_queues", "name") if name.startswith(prefix)] == []


def test_an_impossible_delay_is_one_clear_error(calling_either):
    view = calling_either.solver.options(delay=1.0)
    with pytest.raises(ConfigurationError, match=r"actor\.add answers, so its caller waits itself"):
        view.call("actor.add", 1)
    with pytest.raises(ConfigurationError, match=r"mark it with @service\(response=False, delays=True\)"):
        view.call("actor.push", "x")
    with pytest.raises(ConfigurationError, match="calls of a chord cannot be delayed"):
        view.gather([("actor.push_later", "x")], then="actor.total")
    with pytest.raises(ConfigurationError, match=r"delay=2600000\.0: give a time in s over 0, at most"):
        calling_either.solver.options(delay=2_600_000.0).call("actor.push_later", "x")
