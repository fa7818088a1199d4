"""Tests of ranks with different settings: a learner that differs from the training ones is refused; they train on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from warren.errors import ConfigurationError
from workers.learning.allreduce import membership as module
from workers.learning.allreduce.membership import Generation, Membership

Make = Callable[..., Membership]


@pytest.fixture
def make(redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(module, "SILENT", 600.0)  # no rank counts as dead because this process was stopped
    made: list[Membership] = []

    def rank(learner: int, compression: str = "none", allreduce: str = "auto") -> Membership:
        settings = {"learners": 2, "allreduce": allreduce, "compression": compression}
        made.append(Membership(redis.Redis.from_url(redis_url), f"{run_name}:", learner, "torch", "::1", settings))
        return made[-1]

    yield rank
    for membership in made:
        membership.leave()


def join(membership: Membership, expected: int = 2, patience: float = 30.0) -> Generation | None:
    return membership.next(expected, patience, lambda backend, size, address: 1, threading.Event())


def refused(act: Callable[[], Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        act()
    return str(caught.value)


def test_a_rank_with_another_compression_is_refused_and_the_others_train_on(make: Make) -> None:
    first = make(0)
    first.start()
    assert join(first, expected=1) is not None
    found = refused(make(1, "topk").start)
    assert "learner 1 was started with compression=topk, but learner 0 of this run with compression=none" in found
    assert found.endswith("start it with compression=none")
    make(1).start()  # the same settings are accepted


def test_the_settings_of_a_training_rank_win_whatever_its_number(make: Make) -> None:
    second = make(1)
    second.start()
    assert join(second, expected=1) is not None
    assert "allreduce: learner 0 was started with allreduce=horovod" in refused(make(0, allreduce="horovod").start)


def test_the_settings_of_the_lower_of_two_starting_ranks_win(make: Make) -> None:
    second, first = make(1, "topk"), make(0)
    second.start()
    first.start()
    assert "learner 1 was started with compression=topk" in refused(lambda: join(second))
    generation = join(first, patience=0.0)
    assert generation is not None and generation.members == (first.token,)
