"""DQN: Mnih et al. 2015, with what was added to it since.

Double (van Hasselt et al. 2016), dueling (Wang et al. 2016), n-step and prioritized (Hessel et al. 2018, Schaul et al.
2016), of quantiles (Dabney et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.algorithms.contract import Update
from agents.algorithms.dqn.config import DQNConfig
from agents.algorithms.dqn.losses import value_errors
from agents.algorithms.off_policy import OffPolicyAlgorithm, follow
from agents.algorithms.registry import ALGORITHMS
from agents.algorithms.transition_steps import Learned
from agents.algorithms.transitions import Transitions, transitions
from agents.configuration import parse
from agents.networks import Outputs
from agents.policies import Policy
from agents.policies.categorical import ILLEGAL
from agents.policies.greedy import Greedy
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError
from warren.trees import map_tree

C = TypeVar("C", bound=DQNConfig)


class ValueLearning(OffPolicyAlgorithm[C]):
    """A policy that acts by the values of its actions, and a target that follows it."""

    fixed: ClassVar[tuple[str, ...]] = (*OffPolicyAlgorithm.fixed, "dueling", "quantiles")
    takes_memory: ClassVar[bool] = False

    def __init__(self, policy: Policy, config: C, seed: int) -> None:
        """Raise ConfigurationError for a policy that does not act by values, or has other quantiles."""
        check_policy(policy, config)
        if policy.has_memory and not self.takes_memory:
            raise ConfigurationError(
                f"algorithm: {config.name!r} learns from single steps, and this network has a memory; leave out its "
                "core, or choose algorithm=r2d2"
            )
        super().__init__(policy, config, seed)
        self.target = policy.frozen_copy()
        self.modules["target"] = self.target
        self.learns("policy", self.learning())

    def learning(self) -> nn.Module:
        """Return what an update steps as one; an override adds modules of its own to `modules`."""
        return self.policy

    def behaviour(self) -> dict[str, float]:
        """Return the present epsilon, and how it is spread over actors."""
        config = self.config
        spread = {"epsilon_alpha": config.epsilon_alpha} if config.epsilon_alpha else {}
        return {"epsilon": config.epsilon_at(self.steps, self.progress), **spread}

    def values(self, outputs: Outputs) -> Tensor:
        """Return the value of each action, [..., A, K]: K quantiles or one number."""
        assert isinstance(outputs.policy, Tensor)
        values = outputs.policy.view(*outputs.policy.shape[:-1], -1, self.config.quantiles)
        if self.config.dueling:
            values = outputs.value[..., None, None] + values - values.mean((-2, -1), keepdim=True)
        return values

    def best(self, values: Tensor, target: Tensor, legal: Tensor | None) -> Tensor:
        """Return the values [..., K] in `target` [..., A, K] of the best legal action (by `values` if double)."""
        scores = (values if self.config.double else target).mean(-1)
        if legal is not None:
            scores = scores.masked_fill(~legal, ILLEGAL)
        return taken(target, scores.argmax(-1))

    def unrolled(self, policy: Policy, drawn: Trajectory, burn_in: int) -> Tensor:
        """Return the values [T - burn_in, N, A, K] of `policy`, after a burn-in from the stored memory."""
        ended = drawn.terminated | drawn.truncated
        begins = torch.as_tensor(np.concatenate([np.zeros_like(ended[:1]), ended[:-1]]), device=policy.device)
        memory = {name: torch.as_tensor(part, device=policy.device) for name, part in drawn.memory.items()}
        if burn_in and memory:
            with torch.no_grad():
                seen = policy.leaves(map_tree(lambda leaf: leaf[:burn_in], drawn.observation))
                memory = policy.remember(seen, memory, begins[:burn_in])
        seen = policy.leaves(map_tree(lambda leaf: leaf[burn_in:], drawn.observation))
        return self.values(policy.unrolled(seen, memory, begins[burn_in:])[0])

    def moves_next(self) -> bool:
        """Tell whether the target moves after the next step."""
        return self.config.target_rate < 1 or (self.updates + 1) % self.config.target_every == 0

    def moved(self) -> None:
        """Count an update, and move the target."""
        if self.moves_next():
            follow(self.target, self.policy, self.config.target_rate)
        self.updates += 1


class DQN(ValueLearning[DQNConfig]):
    """One step on a batch of transitions."""

    def update(self, batch: Sequence[Trajectory]) -> Update:
        """Make one step on the transitions of `batch`; priorities are the absolute errors."""
        rate = self.set_learning_rates()
        drawn = transitions(self.policy, batch, self.config.gamma, torch.device("cpu"))
        terms, error, there = self.learn(drawn, moves=self.moves_next())
        self.updates += 1
        self.policy.take_in(there.observation)
        metrics = terms | {"learning_rate": rate, "epsilon": self.config.epsilon_at(self.steps, self.progress)}
        return Update(metrics, drawn.priorities(error))

    def step(self, drawn: Transitions, noise: Mapping[str, Tensor], moves: bool) -> Learned:
        values = self.values(self.policy.outputs(drawn.observation))
        chosen = taken(values, drawn.action)
        target = self.targets(drawn)
        loss = (drawn.weights * value_errors(chosen, target, self.config.huber)).mean()
        inputs = {"value": chosen, "target": target, "reward": drawn.reward}
        norm = self.descend("policy", loss, {"value_loss": loss}, inputs, len(target))
        if moves:
            self.follow(self.target, self.policy, self.config.target_rate)
        error = (target.mean(-1) - chosen.detach().mean(-1)).abs()
        terms = {"value_loss": loss.detach(), "grad_norm": norm, "value": chosen.detach().mean(), "error": error.mean()}
        return Learned(terms, error)

    @torch.no_grad()
    def targets(self, drawn: Transitions) -> Tensor:
        """Return the targets, float32 [N, K], for the values of the actions taken."""
        target = self.values(self.target.outputs(drawn.following))
        values = self.values(self.policy.outputs(drawn.following)) if self.config.double else target
        best = self.best(values, target, drawn.legal)
        return drawn.reward[:, None] + drawn.discount[:, None] * best


def taken(values: Tensor, action: Tensor) -> Tensor:
    """Return [..., K], the values [..., A, K] of `action` [...]."""
    index = action[..., None, None].expand(*action.shape, 1, values.shape[-1])
    return values.gather(-2, index).squeeze(-2)


def check_policy(policy: Policy, config: DQNConfig) -> None:
    """Raise ConfigurationError for a policy that does not act by values, or not by those that the settings describe."""
    name, distribution = config.name, policy.distribution
    if not isinstance(distribution, Greedy):
        is_discrete = isinstance(policy.action_space, spaces.Discrete)
        remedy = "set network.discrete_actions.greedy=true" if is_discrete else "for a Box take sac, for others ppo"
        raise ConfigurationError(
            f"algorithm: {name!r} learns values of Discrete actions, and this policy over {policy.action_space} does "
            f"not act by them; {remedy}"
        )
    if distribution.quantiles != config.quantiles:
        raise ConfigurationError(
            f"algorithm.quantiles: {config.quantiles} of {name!r}, but network.discrete_actions.quantiles is "
            f"{distribution.quantiles}; give both the same number"
        )
    if config.dueling and not policy.has_value:
        raise ConfigurationError(
            f"algorithm.dueling: {name!r} needs the network's value for it; set network.value=true"
        )
    if config.dueling and len(policy.channels) > 1:
        raise ConfigurationError(
            f"algorithm.dueling: {name!r} adds one value to all actions, and reward channels have "
            f"{len(policy.channels)} (env.channel_values); leave out one of the two"
        )


@ALGORITHMS.register("dqn")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> DQN:
    return DQN(policy, parse(DQNConfig, "dqn", config), seed)
