"""Tests of the share of calls with events for Flower: the environment sets it, and it is exact."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import until

from tasks.app.outcome import failed
from tasks.service import Spec
from tasks.worker.task_events import MOST_WAITING, RATE_VARIABLE, TaskEvents, given_rate
from warren.errors import ConfigurationError


@pytest.mark.parametrize(("text", "rate"), [("", None), ("0", 0.0), ("0.25", 0.25), ("1", 1.0)])
def test_the_environment_names_the_share(monkeypatch, text, rate):
    monkeypatch.setenv(RATE_VARIABLE, text)
    assert given_rate() == rate


@pytest.mark.parametrize("text", ["often", "-0.1", "1.01", "nan", "10%"])
def test_an_invalid_share_is_refused_with_a_remedy(monkeypatch, text):
    monkeypatch.setenv(RATE_VARIABLE, text)
    with pytest.raises(ConfigurationError, match=rf"WARREN_EVENT_RATE={text}: not a share .* from 0 to 1"):
        given_rate()


@pytest.mark.parametrize(("rate", "told"), [(0.0, 0), (0.01, 10), (0.3, 300), (1.0, 1000)])
def test_the_share_is_exact_over_all_calls_however_they_are_batched(monkeypatch, rate, told):
    sampler, seen = TaskEvents(None, "worker@host", rate), list[Any]()
    monkeypatch.setattr(sampler, "_tell", lambda what: seen.append(what))
    call, left = SimpleNamespace(properties=None), 1000
    queue: Any = SimpleNamespace(spec=Spec("actor.add"))
    for size in [1, 2, 3, 7, 64] * 100:
        size = min(size, left)
        left -= size
        sampler.after_run(queue, [call] * size, [None] * size, 0.001)
    assert left == 0
    assert len(seen) == told


def test_events_that_the_broker_does_not_take_delay_no_call():
    sampler, connecting, go_on = TaskEvents(None, "worker@host", 1.0), threading.Event(), threading.Event()

    def hang() -> Any:
        connecting.set()
        go_on.wait(60)
        raise OSError("away")

    sampler._app = SimpleNamespace(connection_for_write=hang)
    queue: Any = SimpleNamespace(spec=Spec("actor.add"))
    call: Any = SimpleNamespace(properties=SimpleNamespace(headers={}))
    sampler.after_run(queue, [call], [None], 0.001)
    assert connecting.wait(60)
    sampler.after_run(queue, [call] * (MOST_WAITING + 5), [None] * (MOST_WAITING + 5), 0.001)
    assert sampler.lost == 5
    go_on.set()
    sampler._thread.join(0.0)
    until(lambda: sampler._waiting.empty())
    sampler.close()
    until(lambda: not sampler._thread.is_alive())


def test_events_are_sent_in_order_by_a_thread_of_their_own():
    sent: list[tuple[str, Any]] = []

    class Dispatcher:
        connection = SimpleNamespace(release=lambda: sent.append(("released", None)))

        def send(self, kind: str, **fields: Any) -> None:
            sent.append((kind, fields.get("exception")))

    app = SimpleNamespace(
        connection_for_write=lambda: None, events=SimpleNamespace(Dispatcher=lambda *_, **__: Dispatcher())
    )
    sampler = TaskEvents(app, "worker@host", 1.0)
    queue: Any = SimpleNamespace(spec=Spec("actor.add"))
    call: Any = SimpleNamespace(properties=SimpleNamespace(headers={"id": "x"}))
    sampler.after_run(queue, [call] * 2, [3, failed(ValueError("bad"))], 0.001)
    sampler.close()
    until(lambda: not sampler._thread.is_alive())
    kinds = ["task-received", "task-started"]
    assert [kind for kind, _ in sent] == [*kinds, "task-succeeded", *kinds, "task-failed", "released"]
    assert ("task-failed", "ValueError('bad')") in sent
