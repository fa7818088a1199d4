"""Policy: a network, and the distribution over actions that its outputs stand for.

memory = policy.initial_memory(N)
while True:
    acted = policy.step(observation, memory)
    observation, ... = env.step(policy.env_action(acted.action))
    memory = policy.begin(acted.memory, terminated | truncated)     # those slots remember nothing
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from agents.networks import Memory, Network, Normalized, Outputs
from agents.networks.recurrent import Recurrent
from agents.policies.categorical import Categorical
from agents.policies.distribution import Distribution
from agents.spaces import Leaves, SpaceTree
from agents.trajectories import TrajectorySpec, on_policy
from warren.errors import ConfigurationError
from warren.trees import map_tree


class Acted(NamedTuple):
    """What `step` returns, of N slots; arrays are numpy's, the memory stays in tensors where the weights are."""

    action: Any  # int64 [N] or [N, K], float32 [N, A]; leaf name -> such an array where actions are a Dict or Tuple
    extras: dict[str, np.ndarray]  # log_prob float32 [N], value float32 [N] or [N, channels]
    memory: Memory


class Evaluated(NamedTuple):
    """Given actions under the present weights, with gradients: [B] of a flat batch, [T, N] of an unroll."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor  # [B, channels] where there are several reward channels
    output: Any  # the network's, masked: `statistics` makes of it what `kl` compares


class Policy(nn.Module):
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
    ) -> None:
        """`channels`: of a reward whose channels have a value each, name -> coefficient of its advantage.

        `observation_space` is what it acts by, `learning_space` (a Dict) that with what the value alone sees; None: the
        value sees no more.
        """
        super().__init__()
        self.channels = dict(channels or {})
        self.distribution = distribution
        self.network = network
        self.observation_space = observation_space
        self.learning_space = learning_space or observation_space
        self.action_space = action_space
        self.generator = torch.Generator().manual_seed(seed)
        self.behaviour: Mapping[str, float] = {}  # what the algorithm wants of those that act: see `Algorithm`
        self._acted_by = self._observations = SpaceTree(observation_space, "observation")
        if self.privileged:
            self._observations = SpaceTree(self.learning_space, "observation")
        self._device = next(self.parameters()).device
        self.learn_in()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._device

    def _apply(self, *args: Any, **kwargs: Any) -> Policy:
        moved: Policy = super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._device = next(self.parameters()).device  # looked up here, since it is needed at every step
        return moved

    @property
    def channel_coefficients(self) -> Tensor | None:
        """float32 [C], by which advantages of reward channels are combined; None for one reward."""
        if not self.channels:
            return None
        return torch.tensor(list(self.channels.values()), dtype=torch.float32, device=self._device)

    def spec(
        self, legal_actions: bool = False, returns: int = 0, fields: Collection[str] | None = None
    ) -> TrajectorySpec:
        """Return what trajectories of it hold; the arguments are those of `on_policy`."""
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

    @property
    def privileged(self) -> tuple[str, ...]:
        """Keys of the observation that its value alone sees: `step` and `value` need them, `act` does not."""
        if self.learning_space is self.observation_space:
            return ()
        seen = set(cast(gymnasium.spaces.Dict, self.observation_space).spaces)
        return tuple(key for key in cast(gymnasium.spaces.Dict, self.learning_space).spaces if key not in seen)

    @property
    def has_memory(self) -> bool:
        """Whether its actions depend on what came before in an episode; without, all memories are {}."""
        return bool(self.network.memory)

    def leaves(self, observation: Any) -> Leaves:
        """Observations in numpy, nested as `learning_space` is, as `evaluate` and `unroll` take them."""
        return self._observations.tensors(observation, self._device)

    def visible(self, observation: Any) -> Leaves:
        """What actions follow from: the leaves of `observation_space`; others are left out, and need not be there."""
        return self._acted_by.tensors(observation, self._device)

    def initial_memory(self, n: int) -> Memory:
        """The memory of `n` slots at the beginning of an episode: name -> float32 [n, ...]."""
        return self.network.initial_memory(n)

    def begin(self, memory: Memory, begins: np.ndarray) -> Memory:
        """`memory` with the slots of `begins` bool [N] as `initial_memory` has them: an episode begins there."""
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
    ) -> Acted:
        """One action for each of N slots, whose observations [N, ...] are nested as `learning_space` is.

        `memory`: of the step before; None where episodes begin. `mode`: "sample" draws from `generator` (on the CPU,
        wherever the weights are; the policy's own if None), "greedy" takes the likeliest action. `action_mask` bool
        [N, A] says which actions are legal (one mask after the other of a MultiDiscrete, leaf name -> mask of a Dict);
        None: all are. `value=False` leaves the value out, for who does not learn from it: a separate value trunk is
        most of a small network's cost, and what is privileged need not be there. `noise` float32 [N, A], exponentially
        distributed: what Discrete actions are drawn by in place of `generator`; the same noise draws the same action
        again. Raises ConfigurationError for a mask over continuous actions, and for noise for other than Discrete ones.
        """
        with torch.inference_mode():
            leaves, memory = self._asked(observation, memory, value)
            if value:
                (output, values), memory = self.network.step(leaves, memory)
            else:
                output, memory = self.network.act(leaves, memory)
            output = self.legal(output, action_mask)
            action = self.choose(output, mode, generator, noise)
            extras = {"log_prob": self.distribution.log_prob(output, action).cpu().numpy()}
            if value:
                extras["value"] = values.cpu().numpy()
            return Acted(self.distribution.numpy(action), extras, memory)

    def act(
        self,
        observation: Any,
        memory: Memory | None = None,
        mode: str = "sample",
        action_mask: Any = None,
        *,
        generator: torch.Generator | None = None,
    ) -> tuple[Any, Memory]:
        """`step` for who does not learn: (action, memory), and nothing computed beside."""
        with torch.inference_mode():
            leaves, memory = self._asked(observation, memory, value=False)
            output, memory = self.network.act(leaves, memory)
            action = self.choose(self.legal(output, action_mask), mode, generator)
            return self.distribution.numpy(action), memory

    def choose(
        self, output: Any, mode: str, generator: torch.Generator | None = None, noise: np.ndarray | None = None
    ) -> Any:
        """The action that follows from the network's output for the policy, in tensors; the rest is as in `step`.

        Raises ConfigurationError for another mode.
        """
        if mode == "sample" and noise is not None:
            return self.distribution.drawn_by(output, torch.as_tensor(noise))
        if mode == "sample":
            return self.distribution.sample(output, generator or self.generator)
        if mode == "greedy":
            return self.distribution.mode(output)
        raise ConfigurationError(f"mode {mode!r} of a policy's step must be 'sample' or 'greedy'")

    def _asked(self, observation: Any, memory: Memory | None, value: bool) -> tuple[Any, Memory]:
        """The observation's leaves, those for the `value` alone as well; the memory, fresh where episodes begin."""
        leaves = self.leaves(observation) if value else self.visible(observation)
        if memory is None:
            memory = self.initial_memory(_length(leaves)) if self.network.memory else {}
        return leaves, memory

    def legal(self, output: Any, action_mask: Any) -> Any:
        """What the network says of the actions, such that none is drawn which `action_mask`, as in `step`, forbids."""
        if action_mask is None:
            return output
        return self.distribution.masked(output, self.distribution.tensors(action_mask, self._device))

    def value(self, observation: Any, memory: Memory | None = None) -> np.ndarray:
        """observation [N, ...], as `step` takes it -> V float32 [N], or [N, channels]."""
        with torch.inference_mode():
            leaves, memory = self._asked(observation, memory, value=True)
            return self.network.value(leaves, memory).cpu().numpy()

    def probabilities(self, observation: Any, action_mask: np.ndarray | None = None) -> np.ndarray:
        """observation [N, ...] -> float32 [N, A]; exactly 0 where `action_mask` bool [N, A] is False.

        Raises ConfigurationError for actions that are not Discrete, and for a policy with a memory.
        """
        if self.has_memory:
            raise ConfigurationError(
                "what a policy with a memory does follows from more than one observation; ask it by probabilities_after"
            )
        return self.probabilities_after({}, observation, action_mask)[0]

    def probabilities_after(
        self, memory: Memory, observation: Any, action_mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, Memory]:
        """(`probabilities` of slots that remember `memory`, what they remember then), as `step` without an action.

        Raises ConfigurationError for actions that are not Discrete.
        """
        if not isinstance(self.distribution, Categorical):
            raise ConfigurationError(
                f"a policy over {self.action_space} has no table of probabilities; only one over Discrete actions has"
            )
        with torch.inference_mode():
            output: Any
            output, memory = self.network.act(self.visible(observation), memory)
            return torch.softmax(self.legal(output, action_mask), -1).cpu().numpy(), memory

    def learn_in(self, precision: torch.dtype = torch.float32, compiled: bool = False) -> None:
        """How `evaluate` and `unroll` compute the network from now on; all that is made of its outputs is float32.

        In bfloat16 by autocast: weights and their gradients stay float32. `compiled`: by torch.compile, at the first
        use, for batches of any size.
        """
        self._precision = precision
        self._forward, self._unrolled = self.network.step, self.network.unroll
        if compiled:
            for module in self.network.modules():  # one call between two graphs: how it is cut depends on the data
                if isinstance(module, Recurrent):
                    module.unroll = torch.compiler.disable(module.unroll)  # type: ignore[method-assign, no-untyped-call]
            self._forward, self._unrolled = (
                torch.compile(function, dynamic=True) for function in (self._forward, self._unrolled)
            )

    def _learning(self, function: Callable[..., tuple[Outputs, Memory]], *given: Any) -> tuple[Outputs, Memory]:
        if self._precision is torch.float32:
            return function(*given)
        with torch.autocast(self._device.type, self._precision):
            outputs, memory = function(*given)
        policy, value = map_tree(Tensor.float, outputs.policy), outputs.value.float()
        return Outputs(policy, value), {name: part.float() for name, part in memory.items()}

    def evaluate(
        self, observation: Leaves, action: Any, action_mask: Any = None, exact_entropy: bool = True
    ) -> Evaluated:
        """A flat batch: observations [B, ...] and actions [B, ...] as `step` returned them, in tensors.

        `action_mask` bool [B, A] is that under which they were chosen; None where all actions were legal.
        `exact_entropy=False`: the entropy is only looked at, as `Distribution.log_prob_entropy` says. Raises
        ConfigurationError for a policy with a memory, which `unroll` evaluates.
        """
        if self.network.memory:
            raise ConfigurationError(
                "a network with a memory is trained on unrolls in their order, not on shuffled steps; leave out its "
                "`core`, or choose an algorithm that unrolls"
            )
        outputs, _ = self._learning(self._forward, observation, {})
        return self._evaluated(outputs, action, action_mask, exact_entropy)

    def unroll(
        self,
        observation: Leaves,
        memory: Memory,
        begins: Tensor,
        action: Any,
        action_mask: Any = None,
        exact_entropy: bool = True,
    ) -> tuple[Evaluated, Memory]:
        """The same of T steps of N slots: all [T, N, ...], from `memory` [N, ...] on; and the memory after them.

        `begins` bool [T, N]: where an episode begins, and with it the memory.
        """
        memory = {name: part.clone() for name, part in memory.items()}  # what `step` made takes part in no gradient
        outputs, memory = self._learning(self._unrolled, observation, memory, begins)
        return self._evaluated(outputs, action, action_mask, exact_entropy), memory

    def remember(self, observation: Leaves, memory: Memory, begins: Tensor) -> Memory:
        """`unroll` for the memory after the T steps alone."""
        return self._learning(self._unrolled, observation, memory, begins)[1]

    def _evaluated(self, outputs: Outputs, action: Any, action_mask: Any, exact_entropy: bool) -> Evaluated:
        output, value = outputs
        if action_mask is not None:
            output = self.distribution.masked(output, action_mask)
        log_prob, entropy = self.distribution.log_prob_entropy(output, action, exact_entropy)
        return Evaluated(log_prob, entropy, value, output)

    @property
    def value_scale(self) -> Tensor | None:
        """What errors of the value are measured in, float32 [channels]; None: the reward's own units."""
        return self.network.value_scale if isinstance(self.network, Normalized) else None

    def take_in(self, observation: Leaves, target: Tensor | None = None) -> None:
        """After an update: observations in tensors, and targets of the value, that normalisation is by from now on."""
        if isinstance(self.network, Normalized):
            self.network.take_in(observation, target)

    def statistics(self, output: Any) -> Any:
        """What determines the distribution of an `Evaluated.output` wholly; of a Dict or Tuple, leaf name -> that."""
        return self.distribution.statistics(output)

    def kl(self, p: Any, q: Any) -> dict[str, Tensor]:
        """KL(p || q) by head, [B] or [T, N]; a bare action space's one head is called "".

        `p` and `q` are `statistics` of two policies over the same spaces, a teacher's and a student's say.
        """
        divergence = self.distribution.kl(p, q)
        return divergence if isinstance(divergence, dict) else {"": divergence}

    def env_action(self, action: Any) -> Any:
        """What `step` returned, as a vector environment of this action space takes it."""
        return self.distribution.env_action(action)


def _length(leaves: Leaves) -> int:
    return len(leaves if isinstance(leaves, Tensor) else next(iter(leaves.values())))
