"""Learners that train together make the same updates as one learner with all of their data."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory
from support.waiting import PATIENCE
from torch import Tensor

from agents import build_algorithm, build_policy
from agents.algorithms.peers import ALONE, cuts, standardized
from agents.operators.losses import standardize
from warren.errors import NotFinite

SPACES = Box(-1, 1, (4,), np.float32), Discrete(3)
WHOLE = {name: {"minibatch_size": 1_000_000, "epochs": 2} for name in ("ppo", "appo")}


class InThreads:
    """Peers in threads of one process; contributions are summed in the order of ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._given: dict[int, Any] = {}
        self._rank = threading.local()

    def run(self, work: Callable[[int], object]) -> None:
        """Run `work` for each rank at once. Raises what one of them raises."""

        def begin(rank: int) -> None:
            self._rank.value = rank
            try:
                work(rank)
            except BaseException:
                self._barrier.abort()  # otherwise the others would wait for this one
                raise

        with ThreadPoolExecutor(self.size) as pool:
            ranks = [pool.submit(begin, rank) for rank in range(self.size)]
        errors = [error for rank in ranks if (error := rank.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error

    def _all(self, own: Any) -> list[Any]:
        self._given[self._rank.value] = own
        self._barrier.wait(PATIENCE)
        found = [self._given[rank] for rank in range(self.size)]
        self._barrier.wait(PATIENCE)
        return found

    def total(self, numbers: Tensor) -> Tensor:
        return sum(self._all(numbers), torch.zeros_like(numbers))

    def least(self, number: int) -> int:
        return min(self._all(number))

    def average(self, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        given = self._all((gradient.clone(), loss, weight))
        whole = sum(weight for *_, weight in given)
        gradient.copy_(sum(one * weight / whole for one, _, weight in given))
        return sum((loss * weight / whole for _, loss, weight in given), torch.zeros(()))


def make(name: str, **changes: Any) -> Any:
    policy = build_policy({"hidden_sizes": [16], "normalize_observations": True}, *SPACES, 3)
    settings = {"learning_rate": 0.01, "scale_rewards": True, **WHOLE.get(name, {}), **changes}
    return build_algorithm(name, settings, policy, 3)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", ["a2c", "appo", "impala", "ppo"])
def test_learners_with_unequal_shares_make_the_steps_of_one_with_all_data(name: str, normalized: bool) -> None:
    settings = {"normalize_advantage": normalized}
    one = make(name, **settings)
    data = [random_trajectory(one.policy, steps=8, envs=envs, seed=envs) for envs in (2, 3, 5)]
    shares = [data[:1], data[1:]]
    peers, learners = InThreads(2), [make(name, **settings), make(name, **settings)]
    updates: list[Any] = [None, None]

    def learn(rank: int) -> None:
        learners[rank].take_peers(peers)
        for _ in range(3):
            updates[rank] = learners[rank].update(shares[rank])

    for _ in range(3):
        whole = one.update(data)
    peers.run(learn)
    for key, expected in one.policy.state_dict().items():
        first, second = (learner.policy.state_dict()[key] for learner in learners)
        assert torch.equal(first, second), key
        torch.testing.assert_close(first, expected, rtol=1e-3, atol=1e-5, msg=key)
    assert updates[0].metrics["grad_norm"] == pytest.approx(whole.metrics["grad_norm"], rel=1e-3)
    assert updates[0].metrics["grad_norm"] == updates[1].metrics["grad_norm"]


ANNEALED = {"anneal_steps": 500, "anneal_to": 0.1, "entropy_coefficient": 0.05, "entropy_decay_steps": 50}


@pytest.mark.parametrize("shares", [(1, 1), (1, 3), (1, 2, 1), (3, 2, 0)], ids=str)
@pytest.mark.parametrize("name", ["a2c", "appo", "impala", "ppo"])
def test_schedules_follow_the_steps_of_all_learners(name: str, shares: tuple[int, ...]) -> None:
    """A share of 0 is a learner lost after the first update, in which it had one trajectory."""
    size, one = len(shares), make(name, **ANNEALED)
    data = [random_trajectory(one.policy, steps=8, envs=3, seed=seed) for seed in range(sum(shares) or 1)]
    parts, taken = [], 0
    for share in shares:
        parts.append(data[taken : taken + share])
        taken += share
    first = [part or [random_trajectory(one.policy, steps=8, envs=3, seed=99)] for part in parts]
    left = [rank for rank, share in enumerate(shares) if share]
    learners = [make(name, **ANNEALED) for _ in shares]
    rates: list[list[float]] = [[] for _ in shares]

    def learn(peers: InThreads, of: list[list[Any]], ranks: list[int], times: int) -> None:
        def work(place: int) -> None:
            rank = ranks[place]
            learners[rank].take_peers(peers)
            for _ in range(times):
                rates[rank].append(learners[rank].update(of[rank]).metrics["learning_rate"])

        peers.run(work)

    expected = [one.update([t for part in first for t in part]).metrics["learning_rate"]]
    expected += [one.update(data).metrics["learning_rate"] for _ in range(4)]
    learn(InThreads(size), first, list(range(size)), 1)
    learn(InThreads(len(left)), parts, left, 4)
    for rank in left:
        assert rates[rank] == expected
        assert learners[rank].steps == one.steps
        assert learners[rank].entropy_coefficient == one.entropy_coefficient
        for key, weights in one.policy.state_dict().items():
            same = learners[left[0]].policy.state_dict()[key], learners[rank].policy.state_dict()[key]
            assert torch.equal(*same), key
            torch.testing.assert_close(same[1], weights, rtol=1e-3, atol=1e-5, msg=key)
    assert len(set(expected)) == len(expected)


def test_learners_stop_together_at_target_kl() -> None:
    peers, learners = InThreads(2), [make("ppo"), make("ppo")]
    calm = random_trajectory(learners[0].policy, steps=8, envs=4, seed=1)
    wild = random_trajectory(learners[0].policy, steps=8, envs=4, seed=2)
    wild.extras["log_prob"] -= 3.0  # far from the learner's policy: alone, only this learner would stop

    def learn(rank: int) -> None:
        learners[rank].take_peers(peers)
        learners[rank].adjust({"target_kl": 0.01})
        learners[rank].update([calm, wild][rank : rank + 1])

    before = [parameter.clone() for parameter in learners[0].policy.parameters()]
    peers.run(learn)
    for learner in learners:
        assert all(torch.equal(a, b) for a, b in zip(before, learner.policy.parameters(), strict=True))


def test_nan_at_one_learner_stops_all() -> None:
    peers, learners = InThreads(2), [make("impala"), make("impala")]
    found = []

    def learn(rank: int) -> None:
        learners[rank].take_peers(peers)
        trajectory = random_trajectory(learners[rank].policy, steps=8, envs=4, seed=1)
        trajectory.extras["log_prob"][rank:1] = np.nan
        with pytest.raises(NotFinite):
            learners[rank].update([trajectory])
        found.append(rank)

    peers.run(learn)
    assert sorted(found) == [0, 1]


def test_every_learner_has_equally_many_minibatches_and_none_is_empty() -> None:
    peers = InThreads(2)
    lengths, found = (5, 9), {}
    peers.run(lambda rank: found.update({rank: cuts(lengths[rank], 4, peers)}))
    assert [len(cut) for cut in found.values()] == [3, 3]
    for rank, length in enumerate(lengths):
        assert [place for cut in found[rank] for place in range(length)[cut]] == list(range(length))


@pytest.mark.parametrize(("length", "size"), [(513, 256), (9, 4), (8, 4), (3, 4), (1, 4)])
def test_minibatches_of_one_learner_are_nearly_equal(length: int, size: int) -> None:
    found = cuts(length, size, ALONE)
    assert [place for cut in found for place in range(length)[cut]] == list(range(length))
    lengths = [cut.stop - cut.start for cut in found]
    assert len(lengths) == -(-length // size)
    assert max(lengths) - min(lengths) <= 1


def test_standardized_uses_mean_and_deviation_over_all_learners() -> None:
    peers, parts, found = InThreads(2), (torch.arange(3.0), torch.tensor([10.0])), {}
    peers.run(lambda rank: found.update({rank: standardized(parts[rank], peers)}))
    torch.testing.assert_close(torch.cat([found[0], found[1]]), standardize(torch.cat(parts)))
