"""TD3: Fujimoto et al. 2018; with one critic, no delay and no smoothing it is DDPG, Lillicrap et al. 2016."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from agents.algorithms.contract import Update
from agents.algorithms.critics import ActorAndCritics
from agents.algorithms.registry import ALGORITHMS
from agents.algorithms.td3.config import TD3Config
from agents.algorithms.transition_steps import Learned
from agents.algorithms.transitions import Transitions, transitions
from agents.configuration import parse
from agents.policies import Policy
from agents.policies.bounded import Deterministic
from agents.spaces import Leaves
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError


class TD3(ActorAndCritics[TD3Config]):
    """Steps the critics on a batch of transitions, and the policy and all targets in every `policy_every`-th update."""

    fixed: ClassVar[tuple[str, ...]] = (*ActorAndCritics.fixed, "critics")

    def __init__(self, policy: Policy, config: TD3Config, seed: int) -> None:
        """Raise ConfigurationError for a policy that is not deterministic."""
        if not isinstance(policy.distribution, Deterministic):
            raise ConfigurationError(
                f"algorithm: {config.name!r} trains policies of one action in a Box with bounds, not a "
                f"{type(policy.distribution).__name__} over {policy.action_space}; for a Box set "
                "network.box_actions={deterministic: true}"
            )
        super().__init__(policy, config, seed, config.critics)
        self.target_policy = policy.frozen_copy()
        self.modules["policy_target"] = self.target_policy
        self._last: dict[str, float] = {}  # metrics of the policy's last step

    def behaviour(self) -> dict[str, float]:
        """Return an epsilon of 1 for the first `random_steps`, then the noise."""
        noise, theta = self.config.noise, self.config.noise_theta
        told = {"noise": noise} if theta is None else {"noise": noise, "noise_theta": theta}
        return super().behaviour() or told

    def update(self, batch: Sequence[Trajectory]) -> Update:
        """Make one step; priorities are the critics' mean absolute errors."""
        rate, config, noise = self.set_learning_rates(), self.config, {}
        drawn = transitions(self.policy, batch, config.gamma, torch.device("cpu"))
        if config.target_noise:
            drawn_now = torch.empty(drawn.action.shape).normal_(0, config.target_noise, generator=self.generator)
            noise["target"] = drawn_now.clamp(-config.target_noise_clip, config.target_noise_clip)
        moves = (self.updates + 1) % config.policy_every == 0
        terms, error, there = self.learn(drawn, noise, moves)
        self.updates += 1
        if moves:
            self._last = {name: terms[name] for name in ("policy_loss", "grad_norm")}
        self.policy.take_in(there.observation)
        return Update(terms | self._last | {"learning_rate": rate}, drawn.priorities(error))

    def step(self, drawn: Transitions, noise: Mapping[str, Tensor], moves: bool) -> Learned:
        policy, seen = self.policy, self.seen(drawn.observation)
        terms: dict[str, Tensor] = {}
        target = self._target(drawn, noise.get("target"))
        values = self.critics(seen, policy.distribution.bounded(drawn.action))
        error = self.learn_critics(drawn, values, target, terms)
        if moves:
            loss = -self.critics(seen, _action(policy, drawn.observation))[0].mean()
            terms["policy_loss"] = loss.detach()
            terms["grad_norm"] = self.descend("policy", loss, {"policy_loss": loss}, {}, len(target))
            self.moved()
            self.follow(self.target_policy, policy, self.config.target_rate)
        return Learned(terms, error)

    @torch.no_grad()
    def _target(self, drawn: Transitions, noise: Tensor | None) -> Tensor:
        action = _action(self.target_policy, drawn.following)
        if noise is not None:
            action = self.policy.distribution.noisy(action, noise)
        value: Tensor = self.targets(self.seen(drawn.following), action).amin(0)
        return drawn.reward + drawn.discount * value


def _action(policy: Policy, observation: Leaves) -> Tensor:
    action: Tensor = policy.distribution.mode(policy.outputs(observation).policy)
    return action


@ALGORITHMS.register("td3")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> TD3:
    return TD3(policy, parse(TD3Config, "td3", config), seed)
