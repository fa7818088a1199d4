"""Checks that losses and gradients are finite, for many minibatches at once: they wait for a GPU once per update.

Reading a number of each minibatch would stop the processor, which queues the GPU's work, until the GPU has done all of
it. So a flag stays on the device: from the first minibatch that fails on, no step changes anything (the optimizer's
kernel looks at the flag). The flag is read when the update ends; the error is that of the minibatch that failed first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from warren.errors import NotFinite

MOST = 64  # minibatches that are not looked at: each keeps the tensors that its error would describe


class LateChecks:
    """Checks of one algorithm, whose gradient is `gradient`, float [P]."""

    def __init__(self, gradient: Tensor) -> None:
        self._gradient = gradient
        self._begin()

    def _begin(self) -> None:
        self._made: list[tuple[Tensor, Callable[[], NotFinite]]] = []  # 1: this or an earlier one failed; error's maker
        self._failed = self._gradient.new_zeros((), dtype=torch.float32)
        self._first: Tensor | None = None  # the gradient that failed first, if one did

    def failed(self, number: Tensor, error: Callable[[], NotFinite]) -> Tensor:
        """Return float32 []: 1 where `number` of this minibatch, or of one since the last look, is not finite, else 0.

        `error` makes the error that `look` raises if this minibatch was the first to fail. After MOST, looks itself.
        """
        if len(self._made) >= MOST:
            self.look()
        before, self._failed = self._failed, torch.maximum(self._failed, (~torch.isfinite(number)).float())
        kept = torch.zeros_like(self._gradient) if self._first is None else self._first
        self._first = torch.where(self._failed > before, self._gradient, kept)
        self._made.append((self._failed, error))
        return self._failed

    def look(self) -> None:
        """Wait for the device; raise the error of the first minibatch that failed since the last look, if one did."""
        if not self._made:
            return
        failed = torch.stack([flag for flag, _ in self._made]).tolist()
        errors, first = [error for _, error in self._made], self._first
        self._begin()
        if 1.0 in failed:
            assert first is not None
            self._gradient.copy_(first)  # the gradient that the error describes
            raise errors[failed.index(1.0)]()
