"""Several learners of one policy, each with its share of every update: the sums that they make together."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from agents.operators.losses import standardize


class Peers(Protocol):
    """All learners of one policy, this one among them. Each makes the same calls in the same order, and waits in them
    for the others; each gets the same result, bit for bit, so that their weights stay equal.

    Calls raise an error where a learner is lost; the learners that are left then make the update again.
    """

    @property
    def size(self) -> int:
        """Return the number of learners, this one included."""
        ...

    def total(self, numbers: Tensor) -> Tensor:
        """Return the sum over all learners of float64 [...]."""
        ...

    def least(self, number: int) -> int:
        """Return the smallest of their numbers."""
        ...

    def average(self, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """Replace `gradient` [P] by its weighted mean over all learners; return the same mean of the losses, [].

        `weight`: the steps that this learner's loss is a mean over.
        """
        ...


class Alone:
    """One learner: there is nothing to add up."""

    size = 1

    def total(self, numbers: Tensor) -> Tensor:
        """See Peers."""
        return numbers

    def least(self, number: int) -> int:
        """See Peers."""
        return number

    def average(self, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """See Peers."""
        return loss


ALONE = Alone()


class InFull:
    """The peers of a gradient that is sent in full: a compression keeps one rest, which is the policy's."""

    def __init__(self, peers: Peers) -> None:
        self._peers, self.total, self.least = peers, peers.total, peers.least

    @property
    def size(self) -> int:
        """See Peers."""
        return self._peers.size

    def average(self, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """See Peers."""
        if self.size == 1:
            return loss
        own = torch.cat([gradient.cpu(), loss.cpu().view(1), torch.ones(1)]).double() * weight
        total = self.total(own)
        total = total[:-1] / total[-1]
        gradient.copy_(total[:-1])
        return total[-1].to(loss)


def standardized(x: Tensor, peers: Peers) -> Tensor:
    """Return `x` standardised by the mean and deviation of all learners' `x` together."""
    if peers.size == 1:
        return standardize(x)
    exact = x.double()
    sums = torch.stack([exact.new_tensor(x.numel()), exact.sum(), exact.square().sum()])
    count, total, squares = peers.total(sums).unbind()
    mean = total / count
    variance = ((squares - count * mean.square()) / (count - 1).clamp(min=1)).clamp(min=0)
    return ((exact - mean) / (variance.sqrt() + 1e-8)).to(x.dtype)


def cuts(length: int, size: int, peers: Peers) -> list[slice]:
    """Return where to cut `length` into minibatches of at most `size`, all of nearly the same size.

    `size` counts the steps of all learners together. Every minibatch is one step of all learners, so each makes as many
    as the learner with the least data.
    """
    number = peers.least(-(-length // max(1, size // peers.size)))
    bounds = [length * part // number for part in range(number + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]
