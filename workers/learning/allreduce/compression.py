"""Compression of gradients for the ring: sent whole, in 16 bits per number, or only the largest numbers.

Each of the three is a `Compression`, whose `average` is the mean of all ranks' gradients, the same bits on each rank.
Top-k keeps what it did not send (error feedback), as Deep Gradient Compression does (Lin et al. 2018,
arXiv:1712.01887).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from workers.learning.allreduce.ring import Ring

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}
NAMES = ("none", *HALVES, "topk")
NOT_BY_HOROVOD = "bf16"  # its Ring has no such dtype
LARGEST = 15  # compressed sums stay below 2^15: float16 ends at 65,504
SAMPLED_FROM, SAMPLE = 1 << 19, 100_000  # numbers from which on a sample is taken, and in the sample


class Compression(ABC):
    """A way to average gradients, the same on all ranks. `sent`: bytes that this rank has put into collectives."""

    sent = 0

    @abstractmethod
    def average(self, ring: Ring, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """Replace float32 `gradient` [P] by the mean over all ranks, weighted by `weight`; return the mean of `loss`.

        A number that is NaN or infinite on one rank is NaN or infinite on all ranks afterwards. Raises RanksChanged,
        having changed nothing on this rank.
        """

    def _sum(self, ring: Ring, tensor: Tensor) -> None:
        ring.sum(tensor)
        self.sent += tensor.nbytes

    def _gather(self, ring: Ring, tensor: Tensor) -> list[Tensor]:
        found = ring.gather(tensor)
        self.sent += tensor.nbytes
        return found

    def _shares(self, ring: Ring, loss: Tensor, weight: int, largest: float = 0.0) -> Shares:
        own = torch.tensor([weight, float(loss), largest], dtype=torch.float64)
        weights, losses, largest_of_each = torch.stack(self._gather(ring, own)).unbind(1)
        total = float(weights.sum())
        return Shares(weight / total, float((weights * losses).sum()) / total, float(largest_of_each.max()))


class Shares(NamedTuple):
    """This rank's part of the mean, within 0 and 1; the mean loss; the greatest `largest` that any rank has given."""

    own: float
    loss: float
    largest: float


class Uncompressed(Compression):
    """The whole gradient, with loss and weight, as one float32 tensor in one collective."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0)

    def average(self, ring: Ring, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """See Compression."""
        length = len(gradient)
        if len(self._buffer) != length + 2:
            self._buffer = torch.empty(length + 2)
        buffer = self._buffer
        buffer[:length].copy_(gradient)
        buffer[length], buffer[length + 1] = loss, 1.0
        buffer.mul_(weight)
        self._sum(ring, buffer)
        buffer[:-1].div_(buffer[-1].clone())
        gradient.copy_(buffer[:length])
        return buffer[length].to(loss, copy=True)


class Half(Compression):
    """Each number in 16 bits, scaled by a power of two that all ranks agree on, so that none overflows and few vanish.

    The sum has 16 bits as well. The rounding error is not corrected later; it is at most 1/2,048 of a number in float16
    and 1/256 in bfloat16, once per rank. Numbers under about 2^-39 of the largest are 0 in float16.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def average(self, ring: Ring, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """See Compression."""
        shares = self._shares(ring, loss, weight, float(gradient.abs().max()))
        # Multiplying and dividing a float32 by a power of two does not round.
        exponent = min(max(LARGEST - math.frexp(shares.largest)[1], -120), 120)
        half = (gradient * (shares.own * 2.0**exponent)).to("cpu", self._dtype)
        self._sum(ring, half)
        gradient.copy_(half).mul_(2.0**-exponent)
        return loss.new_tensor(shares.loss)


class TopK(Compression):
    """Only the largest numbers, a share `ratio` of all, with 4 bytes for each value and 4 for its index.

    The rest (`unsent`, float32 [P]) is added to the gradients that follow, until it is among the largest. Each rank has
    its own rest, which is lost with the process and in no checkpoint.
    """

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self.unsent = torch.empty(0)

    def average(self, ring: Ring, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """See Compression."""
        shares = self._shares(ring, loss, weight)
        own = gradient.to("cpu", copy=True).mul_(shares.own)
        if len(self.unsent) == len(own):
            own += self.unsent
        places = largest(own, max(1, math.ceil(self.ratio * len(own))))
        found = self._gather(ring, torch.cat([places.int(), own[places].view(torch.int32)]))
        own[places] = 0.0
        self.unsent = own
        whole = torch.zeros_like(own)
        for one in found:  # in the same order on all ranks, so that sums agree; the indices of one rank are distinct
            theirs, values = one.view(2, -1).unbind()
            whole.index_add_(0, theirs.long(), values.view(torch.float32))
        gradient.copy_(whole)
        return loss.new_tensor(shares.loss)


def largest(numbers: Tensor, count: int) -> Tensor:
    """Return the indices, int64 [count], of the largest `numbers` [P] by absolute value; NaN is larger than any.

    Of many numbers, a sample gives a bound for candidates, as in Deep Gradient Compression, and torch searches those.
    If there are too few candidates, it searches all numbers, which takes longer.
    """
    sizes = numbers.abs()
    if len(sizes) >= SAMPLED_FROM:
        sample = sizes[:: len(sizes) // SAMPLE]
        of_sample = count / len(sizes) * len(sample)
        safe = math.ceil(of_sample + 4 * math.sqrt(of_sample) + 1)  # four standard deviations more than expected
        if safe < len(sample):
            bound = sample.topk(safe, sorted=False).values.min()
            candidates = (sizes < bound).logical_not_().nonzero().squeeze(1)  # not >=, which is false for NaN
            if len(candidates) >= count:
                return candidates[sizes[candidates].topk(count, sorted=False).indices]
    return sizes.topk(count, sorted=False).indices


def build(name: str, ratio: float) -> Compression:
    """Return the compression of that name; `ratio` is the share of the numbers that `topk` sends."""
    if name in HALVES:
        return Half(HALVES[name])
    return TopK(ratio) if name == "topk" else Uncompressed()
