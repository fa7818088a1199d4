"""`lstm` and `gru`: cores of one recurrent layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any, cast

import torch
from torch import Tensor, nn

from agents.configuration import parse
from agents.native.perceptron import Layer
from agents.networks.core import CORES, Core
from agents.networks.network import Memory
from agents.operators.blocks import unset
from warren.errors import ConfigurationError

FEW = 4  # cuts up to which the parts are always unrolled one after another


@dataclass(frozen=True)
class RecurrentConfig:
    """Settings of the cores `lstm` and `gru`."""

    size: int = 128  # numbers in the state

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigurationError(f"size={self.size} of a recurrent core must be at least 1")


class Recurrent(Core):
    """One LSTM or GRU layer, initialised as in CleanRL's recurrent PPO: orthogonal weights, biases of 0."""

    def __init__(
        self, layer: type[nn.LSTM] | type[nn.GRU], inputs: int, config: RecurrentConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.size = config.size
        self.memory = dict.fromkeys(("h", "c") if layer is nn.LSTM else ("h",), (config.size,))
        self.layer = unset(layer, inputs, config.size)
        self._fused = layer is nn.LSTM  # whose steps torch's CPU library makes in one call
        for name, parameter in self.layer.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter, 1.0, generator)
            else:
                nn.init.zeros_(parameter)

    def step(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        outputs, state = self._run(features[None], [memory[name] for name in self.memory])
        return outputs[0], dict(zip(self.memory, state, strict=True))

    def gates(self) -> tuple[str, list[Layer]] | None:
        if type(self) is not Recurrent or "step" in self.__dict__:
            return None
        own = self.layer._parameters
        layers = [(own[f"weight_{of}_l0"], own[f"bias_{of}_l0"]) for of in ("ih", "hh")]
        return "lstm" if self._fused else "gru", cast("list[Layer]", layers)

    def unroll(self, features: Tensor, memory: Memory, begins: Tensor) -> tuple[Tensor, Memory]:
        where = begins.cpu()  # once: the calls that follow depend on it
        cuts = where[1:].any(1).nonzero().flatten() + 1
        if len(cuts) > FEW and self._is_faster_side_by_side(where, len(cuts), features.is_cuda):
            return self._side_by_side(features, memory, where)
        outputs = []
        for first, last in pairwise([0, *cuts.tolist(), len(features)]):
            memory = {name: part.masked_fill(begins[first, :, None], 0) for name, part in memory.items()}
            output, state = self._run(features[first:last], [memory[name] for name in self.memory])
            memory = dict(zip(self.memory, state, strict=True))
            outputs.append(output)
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0], memory

    def _is_faster_side_by_side(self, begins: Tensor, cuts: int, on_gpu: bool) -> bool:
        """Return True if unrolling parts of all stretches side by side is faster than one cut after another.

        The time depends on consecutive steps, however many slots they have, and on the number of calls of the layer.
        """
        steps, call = len(begins), 8 if self._fused or on_gpu else 1  # the time of a call, in steps
        begun = begins.clone()
        begun[0] = True
        places = torch.cat([begun.T.flatten().nonzero().flatten(), torch.tensor([begun.numel()])])
        lengths = set(places.diff().tolist())
        whole = steps in lengths
        parts = reduce(or_, lengths - {steps}, 0)  # the sum of the powers of two that they consist of
        return whole * steps + parts + call * (whole + parts.bit_count()) < steps + call * (cuts + 1)

    def _side_by_side(self, features: Tensor, memory: Memory, begins: Tensor) -> tuple[Tensor, Memory]:
        """Unroll any number of stretches (parts of an episode within the unroll) in at most 2 + log2(T) layer calls.

        A stretch's length is a sum of powers of two. Stretches with the same power go through the layer side by side,
        the greatest power first, each from the state that its previous part left. Nothing is padded.
        """
        steps, slots = features.shape[:2]
        device, flat = features.device, features.flatten(0, 1)
        cuts = begins.T.clone()  # [N, T]
        going_on = ~cuts[:, 0]  # slots that begin in the middle of an episode
        cuts[:, 0] = True
        first = cuts.flatten().nonzero().flatten()  # first step of each stretch, counting slot after slot
        last = torch.cat([first[1:], torch.tensor([steps * slots])])
        slot = first // steps
        fresh = ((first % steps > 0) | ~going_on[slot]).to(device)
        state = [memory[name][slot.to(device)].masked_fill(fresh[:, None], 0) for name in self.memory]
        places, outputs = [], []
        for size in (steps, *(1 << power for power in reversed(range(steps.bit_length())))):
            some = (last - first >= size).nonzero().flatten()
            if not len(some):
                continue
            place = first[some] + torch.arange(size)[:, None]
            there, columns = (place % steps * slots + place // steps).to(device), some.to(device)
            output, after = self._run(flat[there], [part[columns] for part in state])
            state = [part.index_copy(0, columns, new) for part, new in zip(state, after, strict=True)]
            places.append(there.flatten())
            outputs.append(output.flatten(0, 1))
            first[some] += size
        ordered = torch.cat(outputs)[torch.cat(places).argsort()]
        ends = (last % steps == 0).nonzero().flatten().to(device)
        return ordered.view(steps, slots, -1), {name: part[ends] for name, part in zip(self.memory, state, strict=True)}

    def _run(self, features: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Call the layer with a state of [N, size] each, in the order of `self.memory`.

        On a GPU always in float32: autocast would compute cuDNN's layers in float16, whichever type it is asked for.
        """
        if features.is_cuda and torch.is_autocast_enabled("cuda"):
            with torch.autocast("cuda", enabled=False):
                return self._run(features.float(), [part.float() for part in state])
        given = tuple(part[None] for part in state)
        outputs, after = self.layer(features, given if len(given) > 1 else given[0])
        return outputs, [part[0] for part in (after if isinstance(after, tuple) else (after,))]


@CORES.register("lstm")
def build_lstm(config: Mapping[str, Any], inputs: int, generator: torch.Generator) -> Core:
    return Recurrent(nn.LSTM, inputs, parse(RecurrentConfig, "core 'lstm'", config), generator)


@CORES.register("gru")
def build_gru(config: Mapping[str, Any], inputs: int, generator: torch.Generator) -> Core:
    return Recurrent(nn.GRU, inputs, parse(RecurrentConfig, "core 'gru'", config), generator)
