"""Tests of compressed gradients: all ranks get the same bits of the mean, and top-k sends later what it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from workers.config.plain_checks import COMPRESSIONS
from workers.learning.allreduce import compression
from workers.learning.allreduce.compression import TopK, build
from workers.learning.allreduce.ring import RanksChanged
from workers.learning.allreduce.torch_ring import Rendezvous, TorchRing

WEIGHTS = (3, 1)
CLOSE = {"none": 1e-6, "fp16": 2**-10, "bf16": 2**-7, "topk": 1e-6}


Rings = list[TorchRing]


@pytest.fixture(scope="module")
def rings() -> Iterator[Rings]:
    """Yield two ranks of gloo within this process."""
    meeting = Rendezvous(2)
    with ThreadPoolExecutor(2) as threads:
        made = [(rank, 2, "127.0.0.1", meeting.port, "127.0.0.1", lambda: "") for rank in range(2)]
        yield list(threads.map(lambda given: TorchRing(*given), made))
    meeting.close()


def at_both(work: Callable[[TorchRing], Any], rings: Rings) -> list[Any]:
    """Run `work` on all ranks at the same time; return the result of each."""
    with ThreadPoolExecutor(len(rings)) as threads:
        return list(threads.map(work, rings, timeout=60))


def gradients(steps: int, length: int, size: int = 2) -> Tensor:
    """Return float32 [steps, size, length]: a few large numbers, many small ones."""
    return torch.randn(steps, size, length, generator=torch.Generator().manual_seed(1)) ** 3


def averaged(
    rings: Rings, name: str, given: Tensor, ratio: float = 1.0
) -> list[tuple[Tensor, Tensor, compression.Compression]]:
    """Return per rank the means [steps, length], the losses [steps], and its Compression."""

    def work(ring: TorchRing) -> tuple[Tensor, Tensor, compression.Compression]:
        how, means, losses = build(name, ratio), [], []
        for step in given:
            mean = step[ring.rank].clone()
            losses.append(how.average(ring, mean, torch.tensor(float(ring.rank)), WEIGHTS[ring.rank]))
            means.append(mean)
        return torch.stack(means), torch.stack(losses), how

    return at_both(work, rings)


def exact(given: Tensor) -> Tensor:
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    return (given.double() * weights[:, None]).sum(1) / weights.sum()


def test_the_verifier_knows_all_compressions() -> None:
    assert COMPRESSIONS == compression.NAMES


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 1.0, 1e30])
@pytest.mark.parametrize("name", compression.NAMES)
def test_all_ranks_get_the_same_bits_close_to_the_mean_however_large_gradients_are(
    rings: Rings, name: str, scale: float
) -> None:
    given = gradients(2, 101) * scale
    (mean, losses, how), (other, other_losses, _) = averaged(rings, name, given)
    assert torch.equal(mean, other)
    assert torch.equal(losses, other_losses)
    torch.testing.assert_close(losses, torch.full((2,), 0.25))
    # The gradients of each rank are rounded, not their sum, in which they may cancel.
    allowed = CLOSE[name] * given.double().abs().amax(1) + 1e-9 * given.abs().max()
    assert ((mean - exact(given)).abs() <= allowed).all()
    assert how.sent > 0


def test_half_sends_half_and_top_k_the_configured_share(rings: Rings) -> None:
    given = gradients(1, 10_000)
    sent = {name: averaged(rings, name, given, 0.01)[0][2].sent for name in compression.NAMES}
    assert sent == {"none": 40_008, "fp16": 20_024, "bf16": 20_024, "topk": 824}


@pytest.mark.parametrize("name", compression.NAMES)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_on_one_rank_is_nan_on_all(rings: Rings, name: str, value: float) -> None:
    given = gradients(1, 50)
    given[0, 1, 7] = value
    for mean, _, _ in averaged(rings, name, given, 0.1):
        assert not mean[0, 7].isfinite()


class Slow:
    """Top-k of one rank with error feedback, number by number."""

    def __init__(self, length: int) -> None:
        self.unsent = [0.0] * length

    def sends(self, gradient: list[float], count: int) -> dict[int, float]:
        whole = [kept + new for kept, new in zip(self.unsent, gradient, strict=True)]
        largest = sorted(range(len(whole)), key=lambda place: -abs(whole[place]))[:count]
        self.unsent = [0.0 if place in largest else number for place, number in enumerate(whole)]
        return {place: whole[place] for place in largest}


def test_top_k_sends_the_largest_numbers_and_keeps_the_rest(rings: Rings) -> None:
    given, count = gradients(12, 23), 3
    (mean, _, how), (_, _, other) = averaged(rings, "topk", given, count / 23)
    ranks = [Slow(23), Slow(23)]
    for step in range(12):
        expected = np.zeros(23)
        for rank, slow in enumerate(ranks):
            own = (given[step, rank].double() * WEIGHTS[rank] / sum(WEIGHTS)).tolist()
            for place, number in slow.sends(own, count).items():
                expected[place] += number
        np.testing.assert_allclose(mean[step].numpy(), expected, rtol=1e-4, atol=1e-6)
    for kept, slow in zip((how, other), ranks, strict=True):
        assert isinstance(kept, TopK)
        np.testing.assert_allclose(kept.unsent.numpy(), slow.unsent, rtol=1e-4, atol=1e-6)


def test_top_k_sends_later_what_it_keeps_and_loses_nothing(rings: Rings) -> None:
    given = gradients(40, 200)
    (mean, _, first), (_, _, second) = averaged(rings, "topk", given, 0.02)
    assert isinstance(first, TopK)
    assert isinstance(second, TopK)
    assert (mean != 0).sum(1).max() <= 2 * 4
    kept = first.unsent + second.unsent
    torch.testing.assert_close(mean.sum(0) + kept, exact(given).sum(0).float(), rtol=1e-4, atol=1e-4)
    quiet = torch.cat([given, torch.zeros(100, 2, 200)])  # without new gradients all that was kept is sent
    (mean, _, first), _ = averaged(rings, "topk", quiet, 0.02)
    assert isinstance(first, TopK)
    assert first.unsent.eq(0).all()
    torch.testing.assert_close(mean.sum(0), exact(given).sum(0).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.5])
def test_a_sample_finds_the_same_largest_numbers_as_a_full_search(ratio: float) -> None:
    numbers = torch.randn(600_000, generator=torch.Generator().manual_seed(1)) ** 3
    numbers[:300_000] = 0.0
    numbers[123_457] = math.nan
    count = int(ratio * len(numbers))
    found = compression.largest(numbers, count)
    assert 123_457 in found
    assert torch.equal(found.unique(), numbers.abs().topk(count).indices.sort().values)


@pytest.mark.parametrize("first", [0, 1], ids=["too many of them", "none of them"])
def test_the_largest_are_found_though_the_sample_misleads(first: int) -> None:
    numbers = torch.zeros(600_000)
    numbers[first::6] = torch.arange(100_000.0) + 1.0  # the sample takes every sixth number from place 0 on
    expected = torch.arange(50_000, 100_000) * 6 + first
    assert torch.equal(compression.largest(numbers, 50_000).sort().values, expected)


def test_a_lost_rank_changes_neither_the_gradient_nor_what_is_kept() -> None:
    class Lost:
        name, rank, size, calls = "lost", 0, 2, 0

        def gather(self, tensor: Tensor) -> list[Tensor]:
            self.calls += 1
            if self.calls == 4:  # the second average's places and numbers
                raise RanksChanged("a rank has left the ring")
            return [tensor] * 2

    how, ring = TopK(0.1), Lost()
    how.average(ring, torch.arange(20.0), torch.tensor(0.0), 1)  # type: ignore[arg-type]
    kept, gradient = how.unsent.clone(), torch.ones(20)
    with pytest.raises(RanksChanged):
        how.average(ring, gradient, torch.tensor(0.0), 1)  # type: ignore[arg-type]
    assert torch.equal(how.unsent, kept)
    assert gradient.eq(1).all()
