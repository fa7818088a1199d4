"""Steps as CUDA graphs: a step of small networks is a hundred kernels, which take longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

WARM_UP = 3  # steps before a capture, as torch asks for
LEAST = 4 * WARM_UP  # steps of equal shapes after which a capture pays, since more of them can be expected
MOST = 8  # shapes whose graphs are kept
GRAPHED = ("cuda",)  # types of devices that have graphs

Step = Callable[[Any], None]  # takes a key: steps with equal keys are alike


def captured(step: Step, state: Sequence[Tensor], device: torch.device) -> Step:
    """Return the step, captured where `device` has graphs; see Captured."""
    return Captured(step, state) if device.type in GRAPHED else step


class Captured:
    """A step that is launched as one graph for each key, such as the number of rows, after `LEAST` steps with it.

    The step reads and writes only tensors that stay in their places, and does not wait for the device.
    """

    def __init__(self, step: Step, state: Sequence[Tensor]) -> None:
        """Take a step, and all the tensors that it reads and writes."""
        self._step, self._state = step, state
        self._made: dict[Hashable, int] = {}  # steps by their key
        self._graphs: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable) -> None:
        """Make the step."""
        if key not in self._graphs:
            made = self._made[key] = self._made.get(key, 0) + 1
            if made <= LEAST or len(self._graphs) == MOST:
                self._step(key)
                return
            self._graphs[key] = self._captured(key)
        self._graphs[key].replay()

    def _captured(self, key: Hashable) -> Any:
        """Return the graph of a step, which `replay` makes."""
        before, device = [tensor.clone() for tensor in self._state], self._state[0].device
        with torch.cuda.device(device):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    self._step(key)
                    for tensor, old in zip(self._state, before, strict=True):  # each begins where this step has to
                        tensor.copy_(old)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may copy weights meanwhile.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._step(key)
        return graph
