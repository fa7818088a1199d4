"""A policy as an ONNX model: observations and memory in, the policy's outputs and the next memory out.

    inputs     observation, or observation/NAME for each leaf of a Dict or Tuple    [N, ...]
               memory/NAME of a policy with a memory, zeros where an episode begins   [N, ...]
    outputs    output, or output/NAME for each leaf of the actions: logits of Discrete, MultiDiscrete and MultiBinary
               actions, means of Box ones                                                [N, ...]
               action, or action/NAME: the likeliest one, as Policy.step gives it       [N, ...]
               next_memory/NAME                                                         [N, ...]

N is free. Actions are counted from 0, and Box ones are not yet cut to their bounds: Policy.env_action does that.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agents.policies import Policy
from agents.spaces import Leaves, SpaceTree
from agents.trees import spec_of, zeros
from warren.errors import ConfigurationError
from warren.user_code import install

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
CHATTY = {  # loggers that report their optimisations, and further packages that could be installed
    "onnx_ir": logging.WARNING,
    "onnxscript": logging.WARNING,
    "torch.onnx._internal.exporter._registration": logging.ERROR,
}
EXAMPLES = 3  # observations that the network is traced with; 0 and 1 would be taken for fixed numbers


class _Acting(nn.Module):
    """Compute the part of a policy that the model holds, from and to lists of tensors."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.network, self.distribution = policy.network, policy.distribution
        self.tree = SpaceTree(policy.observation_space, "observation")

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        count = len(self.tree.leaves)
        observation: Leaves = given[0] if self.tree.bare else dict(zip(self.tree.leaves, given, strict=False))
        memory = dict(zip(self.network.memory, given[count:], strict=True))
        output, after = self.network.act(observation, memory)
        action = self.distribution.mode(output)
        return (*listed(output), *listed(action), *(after[name] for name in self.network.memory))


def listed(parts: Any) -> list[Any]:
    """Return one part, or the parts of a dict in their order, as a list."""
    return list(parts.values()) if isinstance(parts, dict) else [parts]


def names(policy: Policy) -> tuple[list[str], list[str]]:
    """Return (names of the model's inputs, names of its outputs), in their order."""
    seen, done = (
        [prefix] if tree.bare else [f"{prefix}/{name}" for name in tree.leaves]
        for prefix, tree in (
            ("observation", SpaceTree(policy.observation_space, "observation")),
            ("{}", SpaceTree(policy.action_space, "action")),
        )
    )
    memory = list(policy.network.memory)
    inputs = [*seen, *(f"memory/{name}" for name in memory)]
    outputs = [one.format(kind) for kind in ("output", "action") for one in done]
    return inputs, [*outputs, *(f"next_memory/{name}" for name in memory)]


def to_onnx(policy: Policy) -> bytes:
    """Return the model of `policy`, whose weights are on the CPU.

    Raises ConfigurationError if a package is missing, or ONNX has no form for a part of the network.
    """
    needed()
    inputs, outputs = names(policy)
    acting = _Acting(policy).eval()
    rows = torch.export.Dim("rows")
    try:
        with _silence(), torch.no_grad():
            program = torch.onnx.export(
                acting,
                tuple(_examples(policy)),
                dynamo=True,
                input_names=inputs,
                output_names=outputs,
                dynamic_shapes=(tuple({0: rows} for _ in inputs),),
                external_data=False,
                verbose=False,
            )
        assert program is not None
        data: bytes = program.model_proto.SerializeToString()
    except Exception as error:
        raise ConfigurationError(
            f"network {type(policy.network).__name__} cannot be exported to ONNX: {_reason(error)}; serve it by "
            "backend=pytorch, or write its `act` without branches on what the tensors hold"
        ) from None
    return data


def labelled(model: bytes, about: Mapping[str, Any]) -> bytes:
    """Return an ONNX model with `about` in its metadata, as JSON called "warren"."""
    import onnx

    read = onnx.load_from_string(model)
    onnx.helper.set_model_props(read, {"warren": json.dumps(dict(about))})
    data: bytes = read.SerializeToString()
    return data


def to_int8(model: bytes) -> bytes:
    """Return an ONNX model whose layers have weights of a byte each; values between layers are scaled at each call.

    The model computes the same on every processor. A processor with AVX2 and no VNNI multiplies unsigned by signed
    bytes in pairs, and cuts the sum of two products to 16 bits. So weights are unsigned: pairs of unsigned bytes are
    widened first. ONNX Runtime's quantizer makes the weights of an LSTM signed only; these stay within 64, so that a
    sum is at most 2 x 255 x 64 < 2^15.

    Raises ConfigurationError if a package is missing.
    """
    needed()
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _silence(), tempfile.TemporaryDirectory() as folder:
        signed, quantized = Path(folder) / "lstm.onnx", Path(folder) / "int8.onnx"
        quantize_dynamic(
            onnx.load_from_string(model),
            signed,
            op_types_to_quantize=["LSTM"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=True,
        )
        quantize_dynamic(onnx.load(signed), quantized, per_channel=True, weight_type=QuantType.QUInt8)
        return quantized.read_bytes()


def needed() -> None:
    """Raise ConfigurationError, which names the extra, if a package is missing."""
    if problems := missing():
        raise ConfigurationError(problems)


def missing() -> list[str]:
    """Return a sentence on the packages that are not installed; an empty list if all are."""
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if not absent:
        return []
    return [f"backends onnx and int8: {' and '.join(absent)}: not installed; {install('onnx')}"]


def _examples(policy: Policy) -> list[Tensor]:
    """Return example tensors for the model's inputs."""
    seen = policy.visible(zeros(spec_of(policy.observation_space), (EXAMPLES,)))
    return [*listed(seen), *policy.initial_memory(EXAMPLES).values()]


def _reason(error: BaseException) -> str:
    """Return the first line that is not empty of the first error in a chain, or that error's type."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hide the warnings of exporters, which concern their own code."""
    for name, level in CHATTY.items():
        logging.getLogger(name).setLevel(level)
    root = logging.getLogger()  # ONNX Runtime writes to it directly
    root.addFilter(_is_error)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING
