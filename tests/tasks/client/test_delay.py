"""Tests of delays: which values are allowed, and the broker's queues in which calls wait."""

from __future__ import annotations

import pytest
from support.in_memory import TOPOLOGY, Directory, solver_of

from tasks.client.delay import checked_delay
from tasks.service import Spec, service
from tasks.testing import InMemoryBroker
from warren.errors import ConfigurationError

LATER = Spec("actor.later", response=False, delays=True)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(0.0001, 1), (0.042, 42), (0.1001, 110), (1.0, 1000), (1.01, 1100), (3599.0, 3600_000)],
)
def test_delays_are_rounded_up_to_two_digits(seconds, milliseconds):
    assert checked_delay(seconds, LATER, 86_400.0) == milliseconds


@pytest.mark.parametrize("delay", [0, -1.0, True, "1", float("nan"), 31.0])
def test_an_invalid_delay_is_refused(delay):
    with pytest.raises(ConfigurationError, match="at most 30 on this broker"):
        checked_delay(delay, LATER, 30.0)


def test_a_delayed_call_waits_in_a_queue_that_forwards_and_outlives_it():
    broker = InMemoryBroker()
    with solver_of(broker) as solver:
        directory = solver._directory = Directory(LATER)  # type: ignore[assignment]
        solver.options(delay=1.5, headers={"tenant": "a"}).call("actor.later", 1)
        assert solver.flush() == 0
    queue = TOPOLOGY.delay_queue("actor.later", 1500)
    (message,) = broker.waiting(queue.name)
    assert b"tenant" in message.properties
    assert (queue.message_ttl, queue.expires) == (1.5, 61.5)
    assert queue.queue_arguments["x-dead-letter-routing-key"] == TOPOLOGY.due_queue("actor.later").routing_key
    assert directory.delays == [("actor.later", 1500)]


def test_only_services_without_a_response_have_delays():
    with pytest.raises(ConfigurationError, match="add response=False"):
        service(delays=True)
