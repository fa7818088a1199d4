"""The share of calls that Flower is told of: given by the environment, kept to exactly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tasks.service import Spec
from tasks.worker.task_events import RATE_VARIABLE, TaskEvents, given_rate
from warren.errors import ConfigurationError


@pytest.mark.parametrize(("text", "rate"), [("", None), ("0", 0.0), ("0.25", 0.25), ("1", 1.0)])
def test_the_environment_names_the_share(monkeypatch, text, rate):
    monkeypatch.setenv(RATE_VARIABLE, text)
    assert given_rate() == rate


@pytest.mark.parametrize("text", ["often", "-0.1", "1.01", "nan", "10%"])
def test_what_is_no_share_is_refused_with_a_remedy(monkeypatch, text):
    monkeypatch.setenv(RATE_VARIABLE, text)
    with pytest.raises(ConfigurationError, match=rf"WARREN_EVENT_RATE={text}: is no share .* from 0 to 1"):
        given_rate()


@pytest.mark.parametrize(("rate", "told"), [(0.0, 0), (0.01, 10), (0.3, 300), (1.0, 1000)])
def test_the_share_told_is_that_of_all_calls_however_they_are_batched(monkeypatch, rate, told):
    sampler, seen = TaskEvents(None, "worker@host", rate), list[Any]()
    monkeypatch.setattr(sampler, "_send", lambda *what: seen.append(what))
    call, left = SimpleNamespace(properties=None), 1000
    queue: Any = SimpleNamespace(spec=Spec("actor.add"))
    for size in [1, 2, 3, 7, 64] * 100:
        size = min(size, left)
        left -= size
        sampler.after_run(queue, [call] * size, [None] * size, 0.001)
    assert left == 0
    assert len(seen) == told
