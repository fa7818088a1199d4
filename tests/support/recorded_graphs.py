"""Graphs of steps without a GPU: the operations of a step, recorded and made again on the same tensors.

As a CUDA graph does, a recording reads no number of Python's again: those of the recorded step stay. Its results go to
the places of the recorded step's.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from agents.algorithms import captured, together, transition_steps

WAITING = {"aten._local_scalar_dense.default", "aten.nonzero.default", "aten.masked_select.default"}
RANDOM = {"aten.normal_.default", "aten.randperm.default", "aten.exponential_.default", "aten.uniform_.default"}


class Recorded(TorchDispatchMode):
    """The operations made under it."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert str(function) not in WAITING, f"{function} waits for the device"
        assert str(function) not in RANDOM, f"{function} draws numbers"
        result = function(*args, **(kwargs or {}))
        self._made.append((function, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        """Make the operations again."""
        for function, args, kwargs, result in self._made:
            if not function.is_view:
                found = function(*args, **kwargs)
                for place, now in zip(tree_leaves(result), tree_leaves(found), strict=True):
                    if isinstance(place, Tensor):
                        place.copy_(now)


class Recorder(captured.Captured):
    """Captures by a recording."""

    recordings = 0

    def _captured(self, key: Hashable) -> Recorded:
        before = [tensor.clone() for tensor in self._state]
        with Recorded() as recorded:
            self._step(key)
        for tensor, old in zip(self._state, before, strict=True):
            tensor.copy_(old)
        Recorder.recordings += 1
        return recorded


def use_recorded_graphs(monkeypatch: pytest.MonkeyPatch, least: int = 2) -> None:
    """Let steps on the CPU be made as on a GPU, from the step after `least` alike on by recordings."""
    monkeypatch.setattr(captured, "GRAPHED", ("cpu",))
    monkeypatch.setattr(captured, "LEAST", least)
    monkeypatch.setattr(captured, "Captured", Recorder)
    monkeypatch.setattr(transition_steps, "PACKED", ("cpu",))
    monkeypatch.setattr(together, "STACKED", ("cpu",))
    monkeypatch.setattr(Recorder, "recordings", 0)
    monkeypatch.setattr("agents.native.perceptron.library", lambda: None)  # its calls are not operations of torch
