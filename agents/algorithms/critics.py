"""Critics that the learner alone has: Q(s, a) of Box actions, or Q(s, .) of Discrete ones, by several networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.algorithms.off_policy import OffPolicyAlgorithm, OffPolicyConfig, target_of
from agents.algorithms.settings import Allowed, Scheduled
from agents.algorithms.transitions import Transitions
from agents.networks import Heads, Network, build_network
from agents.networks.images import divide_images
from agents.networks.normalized import IMAGES
from agents.policies import Policy
from agents.spaces import Leaves
from warren.errors import ConfigurationError

DEFAULT = {"hidden_sizes": [256, 256], "activation": "relu", "policy_gain": 1.0}  # critics that are perceptrons


@dataclass(frozen=True)
class CriticsConfig(OffPolicyConfig):
    """Settings of algorithms whose critics are the learner's alone."""

    learning_rate: Scheduled = 3e-4
    critic_rate: float = 1.0  # the critics' learning rate as a multiple of the policy's
    critic: Mapping[str, Any] = field(default_factory=dict)  # name and settings of their network; mlp: [256, 256] relu
    target_rate: float = 0.005  # fraction of the way to the weights that targets move after each update
    random_steps: int = 1_000  # environment steps at the beginning whose actions are drawn uniformly

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "critic_rate": ("above 0", self.critic_rate > 0),
            "target_rate": ("above 0 and at most 1", 0 < self.target_rate <= 1),
            "random_steps": ("at least 0", self.random_steps >= 0),
        }


class Critics(nn.Module):
    """`count` networks with weights of their own, which see the observations that the policy learns from."""

    def __init__(self, policy: Policy, config: Mapping[str, Any], count: int, seed: int) -> None:
        """`config`: name and settings of the network, "mlp" if it has no name. Raises ConfigurationError."""
        super().__init__()
        settings = {**(DEFAULT if config.get("name", "mlp") == "mlp" else {}), **config}
        space, actions, generator = policy.learning_space, policy.action_space, torch.Generator().manual_seed(seed)
        if isinstance(actions, spaces.Box):
            space = spaces.Dict(observation=space, action=spaces.Box(-1, 1, (actions.low.size,), np.float32))
        elif not isinstance(actions, spaces.Discrete):
            raise ConfigurationError(f"critics are of actions of a Box or of Discrete ones, not of {actions}")
        heads = Heads({"": 1 if isinstance(actions, spaces.Box) else int(actions.n)}, values=0)
        networks = [build_network(settings, space, heads, generator) for _ in range(count)]
        if any(network.memory for network in networks):
            raise ConfigurationError("a critic has no memory here; leave out algorithm.critic.core")
        for network in networks:
            if policy.divide_images_by != IMAGES:
                divide_images(network, policy.divide_images_by)
        self.networks = nn.ModuleList(networks)
        self.to(policy.device)

    def forward(self, observation: Leaves, action: Tensor | None = None) -> Tensor:
        """Return float32 [count, N] of observations [N, ...] and actions [N, A] of a Box in [-1, 1]; of observations
        alone, float32 [count, N, A] of all Discrete actions."""
        if action is not None:
            parts = {"": observation} if isinstance(observation, Tensor) else observation
            observation = {f"observation/{name}".rstrip("/"): part for name, part in parts.items()}
            observation["action"] = action
        values = torch.stack([cast(Tensor, cast(Network, one).act(observation, {})[0]) for one in self.networks])
        return values if action is None else values.squeeze(-1)


C = TypeVar("C", bound=CriticsConfig)


class ActorAndCritics(OffPolicyAlgorithm[C]):
    """A policy that is published, and critics with targets that are not."""

    fixed: ClassVar[tuple[str, ...]] = (*OffPolicyAlgorithm.fixed, "critic")

    def __init__(self, policy: Policy, config: C, seed: int, critics: int) -> None:
        """Raise ConfigurationError for a policy with a memory, and for critics that cannot be built."""
        if policy.has_memory:
            raise ConfigurationError(
                f"algorithm: {config.name!r} learns from single steps, and this network has a memory; leave out its "
                "core"
            )
        super().__init__(policy, config, seed)
        self.critics = Critics(policy, config.critic, critics, seed)
        self.targets = target_of(self.critics)
        self.modules = {"critics": self.critics, "critic_targets": self.targets}
        self.learns("policy", policy, [self.critics])
        self.learns("critics", self.critics, [policy])

    def behaviour(self) -> dict[str, float]:
        """Return an epsilon of 1 for the first `random_steps`, then {}."""
        return {"epsilon": 1.0} if self.steps < self.config.random_steps else {}

    def rate_of(self, name: str) -> float:
        return self.config.critic_rate if name == "critics" else 1.0

    def seen(self, observation: Leaves) -> Leaves:
        """Return an observation as the critics see it: normalised by the policy's moments, if the policy normalises."""
        return self.policy.normalized(observation)

    def learn_critics(self, drawn: Transitions, values: Tensor, target: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """Step the critics, whose `values` are [count, N], towards `target` [N]; return the mean absolute error [N].

        Their loss, the sum of half of their mean squared errors, and their gradient's norm are added to `terms`.
        """
        error = values - target
        loss = 0.5 * (drawn.weights * error.square()).mean(-1).sum()
        inputs = {"value": values, "target": target, "reward": drawn.reward}
        norm = self.descend("critics", loss, {"critic_loss": loss}, inputs, len(target))
        terms |= {"critic_loss": loss.detach(), "critic_grad_norm": norm, "value": values.detach().mean()}
        return error.detach().abs().mean(0)

    def moved(self) -> None:
        """Move the critics' targets."""
        self.follow(self.targets, self.critics, self.config.target_rate)
