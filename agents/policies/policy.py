"""Policy: its acting half is in acting.py; here are log-probabilities, entropies and values of given actions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor

from agents.networks import Memory, Network, Normalized, Outputs
from agents.networks.normalized import IMAGES
from agents.networks.recurrent import Recurrent
from agents.policies.acting import ActingPolicy, ActionBatch
from agents.policies.distribution import Distribution
from agents.spaces import Leaves
from agents.trajectories import TrajectorySpec, on_policy
from warren.errors import ConfigurationError
from warren.trees import map_tree

__all__ = ["ActionBatch", "Evaluation", "Policy"]


class Evaluation(NamedTuple):
    """Evaluation of actions under the present weights, with gradients: [B] for a flat batch, [T, N] for an unroll."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor  # [B, channels] where there are several reward channels
    output: Any  # the network's, masked: `statistics` turns it into what `kl` compares


class Policy(ActingPolicy):
    """Acts with numpy arrays (`step`, `value`), learns with tensors (`evaluate`, `unroll`)."""

    def __init__(
        self,
        distribution: Distribution,
        network: Network,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        seed: int,
        channels: Mapping[str, float] | None = None,
        learning_space: gymnasium.Space[Any] | None = None,
        divide_images_by: float = IMAGES,
    ) -> None:
        """`channels`: reward channel -> coefficient of its advantage, where each channel has a value of its own.

        `divide_images_by`: the number by which the network divides bytes of images; critics divide them by it too.
        """
        super().__init__(distribution, network, observation_space, action_space, seed, learning_space)
        self.channels = dict(channels or {})
        self.divide_images_by = divide_images_by
        self.set_learning_precision()

    @property
    def channel_coefficients(self) -> Tensor | None:
        """Return the weights, float32 [C], that combine advantages of reward channels; None for one reward."""
        if not self.channels:
            return None
        return torch.tensor(list(self.channels.values()), dtype=torch.float32, device=self._device)

    @property
    def value_scale(self) -> Tensor | None:
        """Return the unit of errors of the value, float32 [channels]; None for the reward's own unit."""
        return self.network.value_scale if isinstance(self.network, Normalized) else None

    def spec(
        self, legal_actions: bool = False, returns: int = 0, fields: Collection[str] | None = None
    ) -> TrajectorySpec:
        """Return the spec of this policy's trajectories; the arguments are those of `on_policy`."""
        return on_policy(
            self.learning_space,
            self.action_space,
            legal_actions,
            self.network.memory,
            len(self.channels),
            returns,
            self.privileged,
            fields,
        )

    def set_learning_precision(self, precision: torch.dtype = torch.float32, compiled: bool = False) -> None:
        """Set how `evaluate` and `unroll` compute the network; everything after its outputs is float32.

        bfloat16 is computed by autocast: weights and their gradients stay float32. `compiled`: by torch.compile, at
        the first use, for batches of any size.
        """
        self._precision, self._compiled = precision, compiled
        self._forward, self._unrolled = self.network.step, self.network.unroll
        if compiled:
            for module in self.network.modules():  # left out of the graphs: how an unroll is cut depends on the data
                if isinstance(module, Recurrent):
                    module.unroll = torch.compiler.disable(module.unroll)  # type: ignore[method-assign, no-untyped-call]
            self._forward, self._unrolled = (
                torch.compile(function, dynamic=True) for function in (self._forward, self._unrolled)
            )

    @property
    def computes_plainly(self) -> bool:
        """Return True where `evaluate` and `unroll` are those of this class, in float32 and uncompiled."""
        replaced = bool({"evaluate", "unroll"} & self.__dict__.keys())
        replaced |= (type(self).evaluate, type(self).unroll) != (Policy.evaluate, Policy.unroll)
        return self._precision is torch.float32 and not self._compiled and not replaced

    def frozen_copy(self) -> Policy:
        """Return a policy with a copy of these weights, which learns no more; it computes as this one, uncompiled.

        Its generator has a seed of its own, which follows from this one's.
        """
        generator = torch.Generator().manual_seed(self.generator.initial_seed() + 1)
        copied = deepcopy(self, {id(self.generator): generator})
        for module in copied.network.modules():
            module.__dict__.pop("unroll", None)  # a compiled one is bound to this policy's network
        copied.set_learning_precision(self._precision)
        return copied.requires_grad_(False)

    def _compute(self, function: Callable[..., tuple[Outputs, Memory]], *given: Any) -> tuple[Outputs, Memory]:
        if self._precision is torch.float32:
            return function(*given)
        with torch.autocast(self._device.type, self._precision):
            outputs, memory = function(*given)
        policy, value = map_tree(Tensor.float, outputs.policy), outputs.value.float()
        return Outputs(policy, value), {name: part.float() for name, part in memory.items()}

    def outputs(self, observation: Leaves) -> Outputs:
        """Return the network's outputs for a flat batch of observations [B, ...], with gradients, as in `evaluate`."""
        return self._compute(self._forward, observation, {})[0]

    def unrolled(self, observation: Leaves, memory: Memory, begins: Tensor) -> tuple[Outputs, Memory]:
        """Return the network's outputs for observations [T, N, ...] in their order; arguments as in `unroll`."""
        memory = {name: part.clone() for name, part in memory.items()}  # inference tensors take part in no gradient
        return self._compute(self._unrolled, observation, memory, begins)

    def evaluate(self, observation: Leaves, action: Any, action_mask: Any = None) -> Evaluation:
        """Evaluate a flat batch: observations [B, ...] and actions [B, ...] as `step` returned them, in tensors.

        `action_mask` bool [B, A] is that under which they were chosen; None where all actions were legal.
        Raises ConfigurationError for a policy with a memory, which `unroll` evaluates.
        """
        if self.network.memory:
            raise ConfigurationError(
                "a network with a memory is trained on unrolls in their order, not on shuffled steps; leave out its "
                "`core`, or choose an algorithm that unrolls"
            )
        return self._evaluation(self.outputs(observation), action, action_mask)

    def unroll(
        self,
        observation: Leaves,
        memory: Memory,
        begins: Tensor,
        action: Any,
        action_mask: Any = None,
    ) -> tuple[Evaluation, Memory]:
        """Evaluate T steps of N slots, all [T, N, ...], from `memory` [N, ...] on; return the memory after them too.

        `begins` bool [T, N]: where an episode begins, and its memory with it. The rest is as in `evaluate`.
        """
        outputs, memory = self.unrolled(observation, memory, begins)
        return self._evaluation(outputs, action, action_mask), memory

    def remember(self, observation: Leaves, memory: Memory, begins: Tensor) -> Memory:
        """Return the memory [N, ...] after the T steps of an `unroll`, without an evaluation."""
        return self._compute(self._unrolled, observation, memory, begins)[1]

    def _evaluation(self, outputs: Outputs, action: Any, action_mask: Any) -> Evaluation:
        output, value = outputs
        if action_mask is not None:
            output = self.distribution.masked(output, action_mask)
        log_prob, entropy = self.distribution.log_prob_entropy(output, action)
        return Evaluation(log_prob, entropy, value, output)

    def take_in(self, observation: Leaves, target: Tensor | None = None) -> None:
        """Add an update's observations, leaves [B, ...], and targets of the value [B] or [B, C] to the moments of
        normalisation."""
        if isinstance(self.network, Normalized):
            self.network.take_in(observation, target)

    def normalized(self, observation: Leaves) -> Leaves:
        """Return an observation in tensors as the network sees it, by its running moments if it has some."""
        return self.network.normalized(observation) if isinstance(self.network, Normalized) else observation

    def statistics(self, output: Any) -> Any:
        """Return what determines the distribution of an `Evaluation.output`; of a Dict or Tuple, leaf name -> that."""
        return self.distribution.statistics(output)

    def kl(self, p: Any, q: Any) -> dict[str, Tensor]:
        """Return KL(p || q) by head, [B] or [T, N]; the one head of a bare action space is called "".

        `p` and `q` are `statistics` of two policies over the same spaces, such as a teacher and a student.
        """
        divergence = self.distribution.kl(p, q)
        return divergence if isinstance(divergence, dict) else {"": divergence}
