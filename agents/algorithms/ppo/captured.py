"""Steps as CUDA graphs: a step of small networks is a hundred kernels, which take longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

WARM_UP = 3  # steps before a capture, as torch asks for
LEAST = 4 * WARM_UP  # steps of equal shapes after which a capture pays, since more of them can be expected
MOST = 8  # shapes whose graphs are kept

Step = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]


class Captured:
    """A step that is launched as one graph for each shape of its columns, after `LEAST` steps of that shape."""

    def __init__(self, step: Step, state: Sequence[Tensor]) -> None:
        """Take a step, and all the tensors that it writes in place."""
        self._step, self._state = step, state
        self._made: dict[int, int] = {}  # steps by their number of rows
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, dict[str, Tensor], dict[str, Tensor]]] = {}

    def __call__(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Make the step with these columns [P, B, ...]; return what it returns."""
        rows = columns["x"].shape[1]
        if rows not in self._graphs:
            made = self._made[rows] = self._made.get(rows, 0) + 1
            if made <= LEAST or len(self._graphs) == MOST:
                return self._step(columns)
            self._graphs[rows] = self._captured(columns)
        graph, inputs, outputs = self._graphs[rows]
        for name, column in columns.items():
            inputs[name].copy_(column)
        graph.replay()
        return {name: output.clone() for name, output in outputs.items()}

    def _captured(
        self, columns: Mapping[str, Tensor]
    ) -> tuple[torch.cuda.CUDAGraph, dict[str, Tensor], dict[str, Tensor]]:
        inputs = {name: column.clone() for name, column in columns.items()}
        before = [tensor.clone() for tensor in self._state]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._step(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may copy weights meanwhile
            outputs = self._step(inputs)
        for tensor, old in zip(self._state, before, strict=True):
            tensor.copy_(old)
        return graph, inputs, outputs
