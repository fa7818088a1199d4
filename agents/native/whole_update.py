"""PPO updates of players, each in one call of the C library: all minibatches' gradients, Adam's steps and terms."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.native.kinds import Kinds
from agents.native.learning import TERMS, Learner, Loss, LossAsTaken, Steps, StepsAsTaken
from agents.native.perceptron import pool_of, work_of

TOLD = len(TERMS) + 1  # numbers about a minibatch: its terms, and the gradient's norm


class AdamSteps(ctypes.Structure):
    """Adam on one flat vector: `Descent` of whole_update.h."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("rate", "beta1", "beta2", "epsilon", "decay")),
        *((name, ctypes.c_int64) for name in ("decoupled", "step")),
        ("longest", ctypes.c_double),
        ("parameters", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("values", "gradient", "mean", "square", "factors")),
    ]


class _Whole(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("policy", "value")),
        ("steps", StepsAsTaken),
        *((name, ctypes.c_int64) for name in ("rows", "epochs", "minibatches")),
        *((name, ctypes.c_void_p) for name in ("order", "cuts", "kind")),
        ("standardize", ctypes.c_int64),
        ("most_kl", ctypes.c_double),
        ("loss", LossAsTaken),
        ("descent", AdamSteps),
        *((name, ctypes.c_void_p) for name in ("of_policy", "of_value", "terms")),
        *((name, ctypes.c_int64) for name in ("done", "failed", "ended")),
    ]


@dataclass(frozen=True)
class Passes:
    """The passes over a batch of B steps: `orders` int64 [B] each, cut into minibatches at `cuts`, from 0 to B."""

    orders: Sequence[Tensor]
    cuts: Sequence[int]
    standardize: bool  # advantages, in each minibatch
    most_kl: float | None  # a minibatch whose KL is above it ends the update, without a step


class WholeUpdate:
    """One player's update; `run` makes it, in any thread, as long as nothing else touches the player."""

    def __init__(
        self,
        learner: Learner,
        loss: Loss,
        steps: Steps,
        passes: Passes,
        descent: AdamSteps,
        alike: Kinds | None,
    ) -> None:
        """Take the learner, which holds the gradient, the loss, the steps with their columns, and the optimizer.

        `alike`: the steps grouped by their observations.
        """
        trained, epochs, rows = learner.trained, len(passes.orders), len(steps.x)
        self._pointers, self._order = steps.pointers(), torch.stack(list(passes.orders)).to(torch.int32)
        self._cuts, self._alike = torch.tensor(passes.cuts), alike
        self._terms = torch.empty(epochs * (len(passes.cuts) - 1), TOLD, dtype=torch.float64)
        self._nets = [one.perceptron.pointed(one.layers) for one in trained]  # keeps these structures alive
        nets = [ctypes.addressof(net._obj) for net in self._nets]
        gradients = [one.gradient.data_ptr() for one in trained]
        self._loaded = trained[0].perceptron.loaded()
        self._whole = _Whole(
            policy=nets[0], value=nets[1] if len(nets) > 1 else None, steps=self._pointers(0), rows=rows, epochs=epochs,
            minibatches=len(passes.cuts) - 1, order=self._order.data_ptr(), cuts=self._cuts.data_ptr(),
            kind=None if alike is None else alike.kind.data_ptr(),
            standardize=passes.standardize, most_kl=-1.0 if passes.most_kl is None else passes.most_kl,
            loss=loss.of(rows), descent=descent, of_policy=gradients[0],
            of_value=gradients[1] if len(gradients) > 1 else None, terms=self._terms.data_ptr(),
        )  # fmt: skip

    def run(self) -> None:
        """Learn from one minibatch after another, up to the end or to one that is not finite, which changes nothing."""
        of = ctypes.byref(self._whole)
        self._loaded.learn_whole(of, work_of(self._loaded.whole_size(of)))

    @property
    def terms(self) -> Tensor:
        """Return TERMS and the gradient's norm of each minibatch that was learned from, float64 [minibatches, 10]."""
        return self._terms[: self._whole.done]

    @property
    def failed(self) -> bool:
        """Tell whether the minibatch after these had a loss or a gradient that is not finite."""
        return bool(self._whole.failed)

    @property
    def ended(self) -> int | None:
        """Return the number of the minibatch whose KL ended the update; None where none did."""
        return None if self._whole.ended < 0 else int(self._whole.ended)

    @property
    def steps(self) -> int:
        """Return the optimizer's steps so far, those of earlier updates included."""
        return int(self._whole.descent.step)


def run_all(updates: Sequence[WholeUpdate]) -> None:
    """Make the updates of several players, as many at a time as torch has threads."""
    threads = min(torch.get_num_threads(), len(updates))
    waiting = list(reversed(updates))  # a list's pop is one step for all threads

    def some() -> None:
        while waiting:
            try:
                update = waiting.pop()
            except IndexError:  # another thread took the last
                return
            update.run()

    others = [pool_of(threads).submit(some) for _ in range(threads - 1)] if threads > 1 else []
    some()
    for other in others:
        other.result()
