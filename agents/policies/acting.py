"""The acting half of a policy: a network, and the distribution over actions that its outputs stand for.

memory = policy.initial_memory(N)
while True:
    acted = policy.step(observation, memory)
    observation, ... = env.step(policy.env_action(acted.action))
    memory = policy.begin(acted.memory, terminated | truncated)     # those slots remember nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, cast

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from agents.networks import Memory, Network
from agents.policies.categorical import Categorical
from agents.policies.distribution import Distribution
from agents.policies.explorers import Explorer, explorer_of
from agents.policies.one_pass import OnePass
from agents.spaces import Leaves, SpaceTree
from warren.errors import ConfigurationError


class ActionBatch(NamedTuple):
    """Actions of N slots as `step` returns them: arrays are numpy's, the memory stays in tensors with the weights."""

    action: Any  # int64 [N] or [N, K], float32 [N, A]; leaf name -> such an array where actions are a Dict or Tuple
    extras: dict[str, np.ndarray]  # log_prob float32 [N], value float32 [N] or [N, channels]
    memory: Memory


class ActingPolicy(nn.Module):
    """From observations to actions and values, in numpy arrays."""

    def __init__(
        self,
        distribution: Distribution,
        network: Network,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        seed: int,
        learning_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        """`observation_space` is what actions depend on.

        `learning_space` (a Dict) adds keys that only the value sees; None: the value sees no more.
        """
        super().__init__()
        self.distribution = distribution
        self.network = network
        self.observation_space = observation_space
        self.learning_space = learning_space or observation_space
        self.action_space = action_space
        self.generator = torch.Generator().manual_seed(seed)
        self._place = 0, 1
        self._behaviour: Mapping[str, float] = {}
        self.explorer: Explorer | None = None
        self.drift: Tensor | None = None  # the explorer's noise, in the slots that step next
        self._acted_by = self._observations = SpaceTree(observation_space, "observation")
        if self.privileged:
            self._observations = SpaceTree(self.learning_space, "observation")
        self._device = next(self.parameters()).device

    @property
    def behaviour(self) -> Mapping[str, float]:
        """Return `Algorithm.behaviour` of the weights: how actions are drawn; explorers.py lists its keys."""
        return self._behaviour

    @behaviour.setter
    def behaviour(self, behaviour: Mapping[str, float]) -> None:
        self._behaviour, self.explorer = behaviour, explorer_of(behaviour, self.place)

    @property
    def place(self) -> tuple[int, int]:
        """Return the index of the actor that uses this policy, and the number of actors."""
        return self._place

    @place.setter
    def place(self, place: tuple[int, int]) -> None:
        self._place, self.explorer = place, explorer_of(self.behaviour, place)

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self._device

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        moved: Self = super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._device = next(self.parameters()).device  # looked up here, since it is needed at every step
        return moved

    @property
    def privileged(self) -> tuple[str, ...]:
        """Return the observation's keys that only the value sees: `step` and `value` need them, `act` does not."""
        if self.learning_space is self.observation_space:
            return ()
        seen = set(cast(gymnasium.spaces.Dict, self.observation_space).spaces)
        return tuple(key for key in cast(gymnasium.spaces.Dict, self.learning_space).spaces if key not in seen)

    @property
    def has_value(self) -> bool:
        """Return True where the network computes a value; else all values are 0."""
        return self.network.has_value

    @property
    def has_memory(self) -> bool:
        """Return True where actions depend on earlier steps of the episode; else all memories are {}."""
        return bool(self.network.memory)

    def leaves(self, observation: Any, device: torch.device | None = None) -> Leaves:
        """Turn numpy observations, nested as `learning_space` is, into the tensors that `evaluate` takes.

        `device`: where they are to be; None: with the weights.
        """
        return self._observations.tensors(observation, device or self._device)

    def visible(self, observation: Any) -> Leaves:
        """Return the leaves of `observation_space` alone, which actions depend on; privileged ones may be missing."""
        return self._acted_by.tensors(observation, self._device)

    def initial_memory(self, n: int) -> Memory:
        """Return the memory of `n` slots at the beginning of an episode: name -> float32 [n, ...]."""
        return self.network.initial_memory(n)

    def begin(self, memory: Memory, begins: np.ndarray) -> Memory:
        """Return `memory` with the initial one in slots where `begins` bool [N] says that an episode begins."""
        if not memory or not begins.any():
            return memory
        with torch.inference_mode():
            gone = torch.as_tensor(begins, device=self.device)
            return {name: part.masked_fill(gone.view(-1, *[1] * (part.dim() - 1)), 0) for name, part in memory.items()}

    def step(
        self,
        observation: Any,
        memory: Memory | None = None,
        mode: str = "sample",
        action_mask: Any = None,
        *,
        generator: torch.Generator | None = None,
        value: bool = True,
        noise: np.ndarray | None = None,
    ) -> ActionBatch:
        """Choose an action for each of N slots, whose observations [N, ...] are nested as `learning_space` is.

        `memory`: of the step before; None where episodes begin. `mode`: "sample" draws from `generator` (on the CPU,
        wherever the weights are; the policy's own if None), "greedy" takes the likeliest action. `action_mask` bool
        [N, A] says which actions are legal (the masks of a MultiDiscrete concatenated, leaf name -> mask of a Dict);
        None: all are. `value=False` leaves out the value, which is most of a small network's cost if its trunk is
        separate; privileged keys need not be there then. `noise` float32 [N, A], exponentially distributed, draws
        Discrete actions in place of `generator`; the same noise draws the same action again. Raises
        ConfigurationError for a mask over continuous actions, and for noise for other than Discrete ones.
        """
        with torch.inference_mode():
            leaves, memory = self._inputs(observation, memory, value)
            at_once = self.one_pass(value) if mode in ("sample", "greedy") else None
            if at_once is not None:
                return ActionBatch(*at_once(leaves, memory, action_mask, generator or self.generator, mode, noise))
            if value:
                (output, values), memory = self.network.step(leaves, memory)
            else:
                output, memory = self.network.act(leaves, memory)
            output = self.legal(output, action_mask)
            action = self.choose(output, mode, generator, noise)
            extras = {"log_prob": self.distribution.log_prob(output, action).cpu().numpy()}
            if value:
                extras["value"] = values.cpu().numpy()
            return ActionBatch(self.distribution.numpy(action), extras, memory)

    def one_pass(self, value: bool) -> OnePass | None:
        """Return a OnePass that makes steps, with or without a `value`, by the library; None where torch has to."""
        return OnePass.of(self.network, self.distribution, self.explorer is not None, value)

    def act(
        self,
        observation: Any,
        memory: Memory | None = None,
        mode: str = "sample",
        action_mask: Any = None,
        *,
        generator: torch.Generator | None = None,
    ) -> tuple[Any, Memory]:
        """Return (action, memory) as `step` does, and compute nothing else."""
        with torch.inference_mode():
            leaves, memory = self._inputs(observation, memory, value=False)
            output, memory = self.network.act(leaves, memory)
            action = self.choose(self.legal(output, action_mask), mode, generator)
            return self.distribution.numpy(action), memory

    def choose(
        self, output: Any, mode: str, generator: torch.Generator | None = None, noise: np.ndarray | None = None
    ) -> Any:
        """Return the actions, in tensors, for the network's policy output; arguments are as in `step`.

        With an explorer "sample" draws by it. Raises ConfigurationError for another mode.
        """
        if mode == "sample" and noise is not None:
            given = torch.as_tensor(noise)
            if self.explorer is not None:
                return self.explorer.drawn_by(self.distribution, output, given)
            return self.distribution.drawn_by(output, given)
        if mode == "sample":
            return self.draw(output, generator or self.generator)
        if mode == "greedy":
            return self.distribution.mode(output)
        raise ConfigurationError(f"mode {mode!r} of a policy's step must be 'sample' or 'greedy'")

    def draw(self, output: Any, generator: torch.Generator) -> Any:
        """Draw the actions, in tensors, for the network's policy output: by the explorer, if there is one."""
        if self.explorer is None:
            return self.distribution.sample(output, generator)
        action, self.drift = self.explorer.choose(self.distribution, output, generator, self.drift)
        return action

    def _inputs(self, observation: Any, memory: Memory | None, value: bool) -> tuple[Any, Memory]:
        """Return (leaves, memory) for the network, with privileged leaves if `value`, and a fresh memory for None."""
        leaves = self.leaves(observation) if value else self.visible(observation)
        if memory is None:
            memory = self.initial_memory(_length(leaves)) if self.network.memory else {}
        return leaves, memory

    def legal(self, output: Any, action_mask: Any) -> Any:
        """Mask `output` so that actions forbidden by `action_mask`, as in `step`, have probability 0."""
        if action_mask is None:
            return output
        return self.distribution.masked(output, self.distribution.tensors(action_mask, self._device))

    def value(self, observation: Any, memory: Memory | None = None) -> np.ndarray:
        """Return V float32 [N], or [N, channels], of observations [N, ...] as `step` takes them."""
        with torch.inference_mode():
            leaves, memory = self._inputs(observation, memory, value=True)
            if memory and (at_once := self.one_pass(True)) is not None:
                return at_once(leaves, memory, None, self.generator, "greedy")[1]["value"]
            return self.network.value(leaves, memory).cpu().numpy()

    def probabilities(self, observation: Any, action_mask: np.ndarray | None = None) -> np.ndarray:
        """Return float32 [N, A] for observations [N, ...]; exactly 0 where `action_mask` bool [N, A] is False.

        Raises ConfigurationError for actions that are not Discrete, and for a policy with a memory.
        """
        if self.has_memory:
            raise ConfigurationError(
                "the actions of a policy with a memory depend on more than one observation; use probabilities_after"
            )
        return self.probabilities_after({}, observation, action_mask)[0]

    def probabilities_after(
        self, memory: Memory, observation: Any, action_mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, Memory]:
        """Return (`probabilities` of slots with `memory`, their memory afterwards).

        Raises ConfigurationError for actions that are not Discrete.
        """
        if not isinstance(self.distribution, Categorical):
            raise ConfigurationError(
                f"a policy over {self.action_space} has no table of probabilities; only one over Discrete actions has"
            )
        with torch.inference_mode():
            output: Any
            output, memory = self.network.act(self.visible(observation), memory)
            return self.distribution.probabilities(self.legal(output, action_mask)).cpu().numpy(), memory

    def env_action(self, action: Any) -> Any:
        """Turn actions that `step` returned into those that a vector environment of this action space takes."""
        return self.distribution.env_action(action)

    def own_action(self, action: Any) -> Any:
        """Turn actions [N, ...] of the environment, such as recorded ones, into those that `step` would have returned.

        For a Dict or Tuple both are leaf name -> [N, ...]. Raises ConfigurationError for actions outside the space.
        """
        return self.distribution.own_action(action)


def _length(leaves: Leaves) -> int:
    return len(leaves if isinstance(leaves, Tensor) else next(iter(leaves.values())))
