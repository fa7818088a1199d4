"""Steps on batches of transitions: on a GPU by one copy there, one graph and one copy back.

A step of small networks is some hundred kernels. So its transitions, its noise and the learning rates are packed into
one piece of memory, from which a graph of the whole step reads them. The processor waits for the device once: for the
terms, the errors, and the flags that say what was not finite.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from agents.algorithms.adam import Adam
from agents.algorithms.captured import MOST, Step, captured
from agents.algorithms.descent import Descent
from agents.algorithms.late_checks import Checked
from agents.algorithms.sending import host_empty
from agents.algorithms.transitions import Transitions
from warren.trees import Tree, leaves, map_tree

PACKED = ("cuda",)  # types of devices for which one copy of all, and graphs, pay
ALIGNED = 16  # bytes: more than any number has
OURS = ("agents.", "torch.")  # modules of classes whose methods are known not to wait for the device


class Learned(NamedTuple):
    """The outcome of a step, on its device, without gradients."""

    terms: dict[str, Tensor]  # one number each
    error: Tensor  # float32 [N]: of each transition, for priorities


class Told(NamedTuple):
    """The outcome of a step, on the processor."""

    terms: dict[str, float]
    error: np.ndarray  # float32 [N]
    drawn: Transitions  # on the step's device


class TransitionStep(Protocol):
    """A step of all parts of an algorithm, which changes weights in their places and does not wait for the device.

    `moves`: it is one of those that also make what the algorithm does more seldom. Returns the checks too, that are to
    be looked at.
    """

    def __call__(
        self, drawn: Transitions, noise: Mapping[str, Tensor], moves: bool
    ) -> tuple[Learned, Sequence[Checked]]: ...


class Packed:
    """Tensors that are copied to a device in one piece, and stay in their places there."""

    def __init__(self, like: Tree, device: torch.device) -> None:
        every, self._size = [leaf for _, leaf in leaves(like)], 0
        places = []
        for leaf in every:
            places.append(slice(self._size, self._size + leaf.nbytes))
            self._size += -(-leaf.nbytes // ALIGNED) * ALIGNED
        self._host = host_empty((self._size,), torch.uint8, device)
        self._there = torch.empty_like(self._host, device=device)
        self._parts, there = (
            [whole[place].view(leaf.dtype).view(leaf.shape) for place, leaf in zip(places, every, strict=True)]
            for whole in (self._host, self._there)
        )
        following = iter(there)
        self.tree: Tree = map_tree(lambda _: next(following), like)

    def send(self, given: Tree) -> None:
        """Copy tensors, which are as those that this was made for; the last copy has been waited for."""
        for part, (_, leaf) in zip(self._parts, leaves(given), strict=True):
            part.copy_(leaf)
        self._there.copy_(self._host, non_blocking=True)


class _Outcome(NamedTuple):
    numbers: Tensor  # the flags of all checks, the terms and the errors, one after the other
    names: list[str]
    checks: Sequence[Checked]


class TransitionSteps:
    """The steps of one algorithm with its present settings, from transitions on the processor."""

    def __init__(
        self, step: TransitionStep, descents: Mapping[str, Descent], modules: Sequence[nn.Module], plain: bool
    ) -> None:
        """`modules`: all that the step reads or changes. `plain`: nothing but their own code computes it.

        On a GPU steps are captured if torch's and Warren's code is all that they run.
        """
        self._step, self._descents = step, list(descents.values())
        self._device = self._descents[0].parameters.values.device
        self._packed: dict[Hashable, Packed] = {}
        self._outcomes: dict[Hashable, _Outcome] = {}
        self._launched: Step = self._make
        ours = all(type(part).__module__.startswith(OURS) for module in modules for part in module.modules())
        adam = all(isinstance(one.optimizer, Adam) for one in self._descents)
        if self._device.type in PACKED and plain and ours and adam:
            self._launched = captured(self._make, self._state(modules), self._device)

    def __call__(self, drawn: Transitions, noise: Mapping[str, Tensor], moves: bool) -> Told:
        """Make a step by transitions and noise on the processor. Raises NotFinite."""
        tree: dict[str, Tree] = {"drawn": drawn.tensors(), "noise": dict(noise)}
        if self._device.type not in PACKED:
            there = map_tree(lambda leaf: leaf.to(self._device), tree)
            return _told(self._outcome(there, moves), drawn.of(there["drawn"]))
        tree["rates"] = torch.tensor([one.optimizer.learning_rate for one in self._descents])
        key = moves, *((path, leaf.shape, leaf.dtype) for path, leaf in leaves(tree))
        packed = self._packed.get(key) or Packed(tree, self._device)
        packed.send(tree)
        if key in self._packed or len(self._packed) < MOST:
            self._packed[key] = packed
            self._launched(key)
            outcome = self._outcomes[key]
        else:
            outcome = self._outcome(packed.tree, moves)
        return _told(outcome, drawn.of(packed.tree["drawn"]))

    def _make(self, key: Any) -> None:
        self._outcomes[key] = self._outcome(self._packed[key].tree, key[0])

    def _outcome(self, there: Mapping[str, Tree], moves: bool) -> _Outcome:
        optimizers = [one.optimizer for one in self._descents]
        for optimizer, rate in zip(optimizers, there.get("rates", ()), strict=False):
            if isinstance(optimizer, Adam):
                optimizer.rate = rate
        try:
            (terms, error), checks = self._step(Transitions.made_of(there["drawn"]), there["noise"], moves)
        finally:
            for optimizer in optimizers:
                if isinstance(optimizer, Adam):
                    optimizer.rate = None
        flags = [flag for check in checks for flag in check.flags]
        numbers = torch.stack([one.detach().reshape(()) for one in (*flags, *terms.values())])
        return _Outcome(torch.cat([numbers, error]), list(terms), checks)

    def _state(self, modules: Sequence[nn.Module]) -> list[Tensor]:
        """Return all tensors that a step reads and writes."""
        found = [one.detach() for module in modules for one in (*module.parameters(), *module.buffers())]
        for descent in self._descents:
            if isinstance(descent.optimizer, Adam):
                descent.optimizer.begin()
            found += [descent.parameters.gradient, *descent.optimizer.state.values()]
        return found


def _told(outcome: _Outcome, drawn: Transitions) -> Told:
    """Wait for the device. Raises NotFinite."""
    numbers, begin = outcome.numbers.cpu().numpy(), 0
    for check in outcome.checks:
        check.look(numbers[begin : begin + len(check.flags)].tolist())
        begin += len(check.flags)
    end = begin + len(outcome.names)
    return Told(dict(zip(outcome.names, numbers[begin:end].tolist(), strict=True)), numbers[end:], drawn)
