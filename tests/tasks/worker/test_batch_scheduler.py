"""Tests of the batch scheduler: services run in the order of their oldest call, with one entry per service at most."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.service import Spec
from tasks.worker import batch_scheduler
from tasks.worker.batch_scheduler import BatchScheduler
from tasks.worker.middleware import Chain, Middleware
from tasks.worker.service_queue import ServiceQueue


class Model:
    """A scheduler of services and the broker's deliveries to it."""

    def __init__(self, *specs: Spec, middleware: Any = ()) -> None:
        self.queues = {spec.name: ServiceQueue(spec, None, None, Chain(middleware, lambda *_: [])) for spec in specs}
        self.dropped: list[Any] = []
        self.scheduler = BatchScheduler(self.queues.values(), lambda *what: self.dropped.append(what))
        self._tags = itertools.count(1)

    def arrive(self, name: str, number: int = 1) -> None:
        for _ in range(number):
            call: Any = SimpleNamespace(delivery=SimpleNamespace(tag=next(self._tags)))
            self.scheduler.add(self.queues[name], call)

    def next(self, poll: Any = lambda: False) -> tuple[str, int] | None:
        found = self.scheduler.next(poll)
        return found and (found[0].spec.name, len(found[1]))


@pytest.mark.parametrize("batch", [8, 10, 20, 24, 32, 64])
def test_a_saturated_service_lets_others_run_whatever_its_batch(batch):
    model = Model(Spec("busy", batch=batch), Spec("rare"))
    held = max(64, 2 * batch)
    model.arrive("busy", held)
    for _ in range(50):
        model.arrive("rare")
        for turns in itertools.count():
            assert turns <= held // batch + 1, "a call waits for batches of later calls"
            name, size = model.next() or ("", 0)
            assert name
            if name == "rare":
                break
            model.arrive("busy", size)  # the batch is acknowledged, so the broker delivers as many calls


def test_the_scheduler_keeps_at_most_one_entry_per_service():
    model = Model(Spec("busy", batch=20), Spec("rare"))
    model.arrive("busy", 64)
    for _ in range(3000):
        _, size = model.next() or ("", 0)
        model.arrive("busy", size)
        assert len(model.scheduler._ring) <= 2


def test_services_run_in_the_order_of_their_oldest_calls():
    model = Model(Spec("a", batch=2), Spec("b"), Spec("c"))
    for name in "abacaab":
        model.arrive(name)
    order = [model.next() for _ in range(6)]
    assert order == [("a", 2), ("b", 1), ("c", 1), ("a", 2), ("b", 1), None]


def test_a_batch_takes_calls_that_arrive_during_its_selection():
    model = Model(Spec("a", batch=4))
    model.arrive("a")
    left = [2, 5]

    def poll() -> bool:
        if left:
            model.arrive("a", left.pop(0))
            return True
        return False

    assert [model.next(poll), model.next(poll)] == [("a", 4), ("a", 4)]


def test_a_waiting_batch_delays_no_other_service_and_runs_when_full():
    model = Model(Spec("exact", batch=3, minimum=3), Spec("plain"))
    model.arrive("exact", 2)
    model.arrive("plain")
    assert [model.next(), model.next()] == [("plain", 1), None]
    model.arrive("exact")
    assert [model.next(), model.next()] == [("exact", 3), None]


def test_a_batch_that_has_waited_long_enough_runs_with_fewer_calls(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(batch_scheduler, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    model = Model(Spec("exact", batch=3, minimum=3, wait=0.5))
    model.arrive("exact", 2)
    assert model.next() is None and model.scheduler.patience() == 0.5
    clock[0] += 0.5
    assert model.scheduler.patience() == 0.0
    assert model.next() == ("exact", 2) and model.scheduler.patience() is None


def test_unneeded_calls_are_reported_with_the_reason_and_in_no_batch():
    class Odd(Middleware):
        def before_run(self, queue: Any, call: Any) -> str | None:
            return "odd" if call.delivery.tag % 2 else None

    model = Model(Spec("exact", batch=4, minimum=2), Spec("plain"), middleware=[Odd()])
    model.arrive("exact", 3)
    assert model.next() is None  # one is left
    model.arrive("exact", 2)
    assert model.next() == ("exact", 2)
    assert [why for _, _, why in model.dropped] == ["odd"] * 3
