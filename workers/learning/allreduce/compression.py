"""What of a gradient crosses the ring: all of it, half the bits of each number, or the largest numbers alone.

Each way is a `Compression`, whose `average` is the mean of all ranks' gradients, the same bits on each rank. Top-k
keeps what it did not send (error feedback), as Deep Gradient Compression does (Lin et al. 2018, arXiv:1712.01887).
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
SAMPLED_FROM, SAMPLE = 1 << 19, 100_000  # numbers


class Compression(ABC):
    """One rank's way to average; all ranks have the same. `sent`: bytes that this rank has put into collectives."""

    sent = 0

    @abstractmethod
    def average(self, ring: Ring, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """Replace float32 `gradient` [P] by the mean over all ranks, each weighted by its `weight`; that of the losses.

        What is nan or infinite on one rank is so on all afterwards. Raises RanksChanged, having changed nothing here.
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
    """This rank's part of the mean, within 0 and 1; the mean loss; the largest of the numbers given as such."""

    own: float
    loss: float
    largest: float


class Uncompressed(Compression):
    """All of it, in one collective of one float32 tensor: the gradient, the loss and the weight."""

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
    """Each number in 16 bits, in units that all ranks agree on: then none overflows, and few are lost as too small.

    The sum is of 16 bits as well. What is rounded off is forgotten; of float16 it is 1/2,048 of a number at most, of
    bfloat16 1/256, once for each rank. Numbers under about 2^-39 of the largest are 0 in float16.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def average(self, ring: Ring, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """See Compression."""
        shares = self._shares(ring, loss, weight, float(gradient.abs().max()))
        # A power of two, by which a float32 is multiplied and divided without rounding.
        exponent = min(max(LARGEST - math.frexp(shares.largest)[1], -120), 120)
        half = (gradient * (shares.own * 2.0**exponent)).to("cpu", self._dtype)
        self._sum(ring, half)
        gradient.copy_(half).mul_(2.0**-exponent)
        return loss.new_tensor(shares.loss)


class TopK(Compression):
    """The `ratio` of all numbers that are largest, 4 bytes each and 4 for its place. The rest is kept, and added to the
    gradients that follow, until it is among the largest: what is not sent now is sent later.

    What is kept (`unsent`, float32 [P]) is this rank's own. It is lost with the process, and is in no checkpoint.
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
        for one in found:  # in the order of the ranks, so that each adds alike; the places of one rank differ
            theirs, values = one.view(2, -1).unbind()
            whole.index_add_(0, theirs.long(), values.view(torch.float32))
        gradient.copy_(whole)
        return loss.new_tensor(shares.loss)


def largest(numbers: Tensor, count: int) -> Tensor:
    """The places, int64 [count], of those of `numbers` [P] that are furthest from 0; nan is further than any.

    Of many numbers a sample says which can be meant, as in Deep Gradient Compression. Among those torch finds them, and
    among all, which takes it long, where the sample was wrong.
    """
    sizes = numbers.abs()
    if len(sizes) >= SAMPLED_FROM:
        sample = sizes[:: len(sizes) // SAMPLE]
        of_sample = count / len(sizes) * len(sample)
        safe = math.ceil(of_sample + 4 * math.sqrt(of_sample) + 1)  # four deviations more than there should be
        if safe < len(sample):
            bound = sample.topk(safe, sorted=False).values.min()
            candidates = (sizes < bound).logical_not_().nonzero().squeeze(1)  # not >=, which is false for nan
            if len(candidates) >= count:
                return candidates[sizes[candidates].topk(count, sorted=False).indices]
    return sizes.topk(count, sorted=False).indices


def build(name: str, ratio: float) -> Compression:
    """The one of that name; `ratio`: of numbers that `topk` sends."""
    if name in HALVES:
        return Half(HALVES[name])
    return TopK(ratio) if name == "topk" else Uncompressed()
