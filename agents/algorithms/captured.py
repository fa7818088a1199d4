"""Steps as CUDA graphs: a step of small networks is a hundred kernels, which take longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM_UP = 3  # steps before a capture, as torch asks for
LEAST = 4 * WARM_UP  # steps of equal shapes after which a capture pays, since more of them can be expected
MOST = 8  # shapes whose graphs are kept

Step = Callable[[int], None]  # takes the number of rows


class Captured:
    """A step that is launched as one graph for each number of rows, after `LEAST` steps of as many.

    The step reads and writes only tensors that stay in their places, and does not wait for the device.
    """

    def __init__(self, step: Step, state: Sequence[Tensor]) -> None:
        """Take a step, and all the tensors that it reads and writes."""
        self._step, self._state = step, state
        self._made: dict[int, int] = {}  # steps by their number of rows
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def __call__(self, rows: int) -> None:
        """Make the step."""
        if rows not in self._graphs:
            made = self._made[rows] = self._made.get(rows, 0) + 1
            if made <= LEAST or len(self._graphs) == MOST:
                self._step(rows)
                return
            with torch.cuda.device(self._state[0].device):
                self._graphs[rows] = self._captured(rows)
        self._graphs[rows].replay()

    def _captured(self, rows: int) -> torch.cuda.CUDAGraph:
        before = [tensor.clone() for tensor in self._state]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._step(rows)
                for tensor, old in zip(self._state, before, strict=True):  # each begins where this step has to
                    tensor.copy_(old)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may copy weights meanwhile
            self._step(rows)
        return graph
