"""Backends: ways to compute a policy's outputs for acting. All draw actions by the policy's own distribution.

backend = build_backend("onnx", policy)
memory = backend.initial_memory(N)
action, memory = backend.act(observation, memory, "sample", generator)      # gives what Policy.step gives
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from agents.policies import Policy
from agents.spaces import SpaceTree, dtype_of
from warren.registry import Registry
from warren.trees import map_tree
from workers.models.exporting import listed, names, needed, to_int8, to_onnx

Memory = dict[str, np.ndarray]  # name -> float32 [N, ...]; {} for a policy without memory


class Backend:
    """A way to act with numpy arrays. `policy`: the one that it computes, with its weights."""

    name: str

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._zeros = {name: part.numpy()[0] for name, part in policy.initial_memory(1).items()}

    def initial_memory(self, n: int) -> Memory:
        """Return the memory of `n` slots where an episode begins: zeros."""
        return {name: np.zeros((n, *part.shape), part.dtype) for name, part in self._zeros.items()}

    def outputs(self, observation: Any, memory: Memory) -> tuple[Any, Memory]:
        """Return (the network's outputs for the actions, as tensors; the memory after).

        Observations [N, ...] are nested as the observation space is; `memory` is the one before them.
        """
        raise NotImplementedError

    def act(
        self, observation: Any, memory: Memory, mode: str, generator: torch.Generator, action_mask: Any = None
    ) -> tuple[Any, Memory]:
        """Return (actions [N, ...], memory after), as Policy.act does with a generator in the same state."""
        with torch.inference_mode():
            output, memory = self.outputs(observation, memory)
            output = self.policy.legal(output, action_mask)
            return self.policy.distribution.numpy(self.policy.choose(output, mode, generator)), memory


BACKENDS: Registry[Callable[[Policy, int], Backend]] = Registry("backend")


@BACKENDS.register("pytorch")
class PytorchBackend(Backend):
    """A backend that computes by the policy itself."""

    name = "pytorch"

    def __init__(self, policy: Policy, threads: int = 1) -> None:
        super().__init__(policy)

    def outputs(self, observation: Any, memory: Memory) -> tuple[Any, Memory]:
        before = {name: torch.from_numpy(part) for name, part in memory.items()}
        output, after = self.policy.network.act(self.policy.visible(observation), before)
        return output, {name: part.numpy() for name, part in after.items()}


@BACKENDS.register("onnx")
class OnnxBackend(Backend):
    """A backend that computes by an ONNX model of the policy and ONNX Runtime, on the CPU."""

    name = "onnx"

    def __init__(self, policy: Policy, threads: int = 1, model: bytes | None = None) -> None:
        """`model`: of `to_onnx`, if made before. Raises ConfigurationError for a policy that cannot be exported."""
        super().__init__(policy)
        self.model = self._made() if model is None else model
        needed()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(self.model, options, providers=["CPUExecutionProvider"])
        self._inputs, outputs = names(policy)
        memory = list(policy.network.memory)
        self._said = [name for name in outputs if name.startswith("output")]
        self._likeliest = [name for name in outputs if name.startswith("action")]
        self._tree = SpaceTree(policy.observation_space, "observation")
        # numpy's names of torch's dtypes: for one observation, going through tensors would take a fifth of the time
        self._dtypes = [torch.empty(0, dtype=dtype_of(leaf)).numpy().dtype for leaf in self._tree.leaves.values()]
        self._after = [f"next_memory/{name}" for name in memory]
        self._leaves = None if self._said == ["output"] else [name.partition("/")[2] for name in self._said]

    def _made(self) -> bytes:
        return to_onnx(self.policy)

    def _run(self, wanted: list[str], observation: Any, memory: Memory) -> tuple[Any, Memory]:
        parts = listed(self._tree.flatten(observation))
        seen = [np.asarray(part, dtype) for part, dtype in zip(parts, self._dtypes, strict=True)]
        given = dict(zip(self._inputs, [*seen, *memory.values()], strict=True))
        found = self._session.run([*wanted, *self._after], given)
        said = found[0] if self._leaves is None else dict(zip(self._leaves, found, strict=False))
        return said, dict(zip(memory, found[len(wanted) :], strict=True))

    def outputs(self, observation: Any, memory: Memory) -> tuple[Any, Memory]:
        output, after = self._run(self._said, observation, memory)
        return map_tree(torch.from_numpy, output), after

    def act(
        self, observation: Any, memory: Memory, mode: str, generator: torch.Generator, action_mask: Any = None
    ) -> tuple[Any, Memory]:
        if action_mask is not None:
            return super().act(observation, memory, mode, generator, action_mask)
        if mode == "greedy":
            return self._run(self._likeliest, observation, memory)
        output, after = self._run(self._said, observation, memory)
        return self.policy.distribution.sample_in_numpy(output, generator), after


@BACKENDS.register("int8")
class Int8Backend(OnnxBackend):
    """A backend that computes by an ONNX model with weights of a byte each."""

    name = "int8"

    def _made(self) -> bytes:
        return to_int8(super()._made())


def build_backend(name: str, policy: Policy, threads: int = 1) -> Backend:
    """Return the backend of that name for `policy`, with `threads` threads if it has its own.

    Raises UnknownName, and ConfigurationError for a policy that it cannot compute.
    """
    return BACKENDS[name](policy, threads)
