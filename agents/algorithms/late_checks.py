"""Checks that losses and gradients are finite, for many minibatches at once: they wait for a GPU once per update.

Reading a number of each minibatch would stop the processor, which queues the GPU's work, until the GPU has done all of
it. So a flag stays on the device, and the optimizer's kernel looks at it: from the first minibatch that fails on, no
step changes anything. The flag is read when the update ends. The error is that of the minibatch that failed first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warren.errors import NotFinite

MOST = 64  # minibatches that are not looked at: each keeps the tensors that its error would describe


@dataclass(frozen=True)
class Checked:
    """Checks of some minibatches that follow each other."""

    flags: Sequence[Tensor]  # float32 [] each: 1 where this or an earlier one failed
    errors: Sequence[Callable[[], NotFinite]]  # makers of their errors
    first: Tensor | None  # the gradient that failed first, if one did
    gradient: Tensor  # where gradients are written

    def look(self, flags: Sequence[float]) -> None:
        """Raise the error of the first minibatch that failed, if one did; `flags`: the numbers that `flags` hold."""
        if 1.0 in flags:
            assert self.first is not None
            self.gradient.copy_(self.first)  # the gradient that the error describes
            raise self.errors[list(flags).index(1.0)]()


class LateChecks:
    """Checks of one algorithm, whose gradient is `gradient`, float [P]."""

    def __init__(self, gradient: Tensor) -> None:
        self._gradient = gradient
        self.begin()

    def begin(self, failed: Tensor | None = None) -> None:
        """Forget the checks. `failed`, float32 []: 1 where a step of another part has failed, which none may follow."""
        self._flags: list[Tensor] = []
        self._errors: list[Callable[[], NotFinite]] = []
        self._failed = self._gradient.new_zeros((), dtype=torch.float32) if failed is None else failed
        self._first: Tensor | None = None

    def failed(self, number: Tensor, error: Callable[[], NotFinite]) -> Tensor:
        """Return float32 []: 1 where `number` of this minibatch, or of one since the last look, is not finite, else 0.

        `error` makes the error that `look` raises if this minibatch was the first to fail. After MOST, looks itself.
        """
        if len(self._flags) >= MOST:
            self.look()
        before, self._failed = self._failed, torch.maximum(self._failed, (~torch.isfinite(number)).float())
        kept = torch.zeros_like(self._gradient) if self._first is None else self._first
        self._first = torch.where(self._failed > before, self._gradient, kept)
        self._flags.append(self._failed)
        self._errors.append(error)
        return self._failed

    def checked(self) -> Checked:
        """Return the checks since `begin`, or since the last look."""
        return Checked(self._flags, self._errors, self._first, self._gradient)

    def look(self) -> None:
        """Wait for the device; raise the error of the first minibatch that failed since the last look, if one did."""
        checked = self.checked()
        if checked.flags:
            self.begin()
            checked.look(torch.stack(list(checked.flags)).tolist())
