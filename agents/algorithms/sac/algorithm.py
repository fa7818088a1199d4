"""SAC: Haarnoja et al. 2018 (arXiv 1812.05905); for Discrete actions Christodoulou 2019 (arXiv 1910.07207)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agents.algorithms.contract import Update
from agents.algorithms.critics import ActorAndCritics
from agents.algorithms.registry import ALGORITHMS
from agents.algorithms.sac.config import SACConfig
from agents.algorithms.transition_steps import Learned
from agents.algorithms.transitions import Transitions, transitions
from agents.configuration import parse
from agents.policies import Policy
from agents.policies.bounded import StateGaussian
from agents.policies.categorical import ILLEGAL, Categorical
from agents.policies.greedy import Greedy
from agents.spaces import Leaves
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError

CRITICS = 2


class Temperature(nn.Module):
    """The logarithm of the entropy's coefficient, which keeps the coefficient above 0 whatever the gradient."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor([math.log(value)]))


class SAC(ActorAndCritics[SACConfig]):
    """One step of twin critics, policy and temperature on a batch of transitions."""

    def __init__(self, policy: Policy, config: SACConfig, seed: int) -> None:
        """Raise ConfigurationError for a policy that SAC does not train."""
        check_policy(policy)
        super().__init__(policy, config, seed, CRITICS)
        self._discrete = isinstance(policy.distribution, Categorical)
        self._tuned = config.tuned
        if config.tuned:
            self.modules["temperature"] = temperature = Temperature(config.temperature).to(policy.device)
            self.learns("temperature", temperature, [policy, self.critics])

    @property
    def temperature(self) -> float:
        """Return the coefficient of the entropy."""
        return float(self._temperature())

    def _temperature(self) -> Tensor:
        """Return the coefficient of the entropy, float32 [], where the policy is."""
        if not self._tuned:
            return torch.full((), self.config.temperature, device=self.policy.device)
        module = self.modules["temperature"]
        assert isinstance(module, Temperature)
        return module.logarithm.detach().exp().squeeze(0)

    def rate_of(self, name: str) -> float:
        return self.config.temperature_rate if name == "temperature" else super().rate_of(name)

    def update(self, batch: Sequence[Trajectory]) -> Update:
        """Make one step of each part; priorities are the critics' mean absolute errors."""
        rate, names = self.set_learning_rates(), () if self._discrete else ("following", "now")
        drawn = transitions(self.policy, batch, self.config.gamma, torch.device("cpu"))
        noise = {name: torch.empty(drawn.action.shape).normal_(generator=self.generator) for name in names}
        terms, error, there = self.learn(drawn, noise)
        self.updates += 1
        self.policy.take_in(there.observation)
        return Update(terms | {"learning_rate": rate}, drawn.priorities(error))

    def step(self, drawn: Transitions, noise: Mapping[str, Tensor], moves: bool) -> Learned:
        temperature, seen = self._temperature(), self.seen(drawn.observation)
        terms: dict[str, Tensor] = {}
        with torch.no_grad():
            of_next = noise.get("following")
            following, _, _ = self._soft(self.targets, drawn.following, drawn.legal, temperature, of_next)
            target = drawn.reward + drawn.discount * following
        error = self.learn_critics(drawn, self._values(drawn, seen), target, terms)
        legal, now = drawn.legal_now, noise.get("now")
        soft, entropy, largest = self._soft(self.critics, drawn.observation, legal, temperature, now)
        loss = -soft.mean()
        terms |= {"policy_loss": loss.detach(), "entropy": entropy.detach().mean()}
        inputs = {"soft value": soft, "new entropy": entropy}
        terms["grad_norm"] = self.descend("policy", loss, {"policy_loss": loss}, inputs, len(soft))
        if self._tuned:
            self._tune(entropy.detach(), largest)
        self.moved()
        return Learned(terms | {"temperature": temperature}, error)

    def _values(self, drawn: Transitions, seen: Leaves) -> Tensor:
        """Return the critics' values [2, N] of the actions that were taken."""
        values: Tensor
        if not self._discrete:
            values = self.critics(seen, self.policy.distribution.bounded(drawn.action))
            return values
        index = drawn.action.expand(CRITICS, -1).unsqueeze(-1)
        values = self.critics(seen).gather(-1, index).squeeze(-1)
        return values

    def _soft(
        self, critics: nn.Module, observation: Leaves, legal: Tensor | None, temperature: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (the policy's soft value by the lowest critic, its entropy, the largest possible entropy), [N] each.

        For Discrete actions they are exact; for a Box they are estimated by one action, which `noise` [N, A] draws so
        that gradients flow through it, and the last is 0.
        """
        policy, seen = self.policy, self.seen(observation)
        output = policy.outputs(observation).policy
        if self._discrete:
            assert isinstance(output, Tensor)
            if legal is not None:
                output = output.masked_fill(~legal, ILLEGAL)
            log_probs = torch.log_softmax(output, -1)
            probabilities = log_probs.exp()
            entropy = -(probabilities * log_probs).sum(-1)
            value = (probabilities * critics(seen).amin(0)).sum(-1)
            choices = torch.full_like(value, output.shape[-1]) if legal is None else legal.sum(-1)
            return value + temperature * entropy, entropy, choices.log()
        assert isinstance(policy.distribution, StateGaussian)
        assert isinstance(output, Tensor)
        assert noise is not None
        action = policy.distribution.displaced(output, noise)
        entropy = -policy.distribution.log_prob(output, action)
        value = critics(seen, policy.distribution.bounded(action)).amin(0)
        return value + temperature * entropy, entropy, torch.zeros_like(entropy)

    def _tune(self, entropy: Tensor, largest: Tensor) -> None:
        """Raise the temperature where the entropy is below its target, lower it where it is above."""
        module, config = self.modules["temperature"], self.config
        assert isinstance(module, Temperature)
        wanted: Tensor | float = config.target_entropy if config.target_entropy is not None else 0.0
        if config.target_entropy is None:
            size = self.policy.distribution.size / 2  # a mean and a deviation each
            wanted = config.entropy_share * largest if self._discrete else -size
        loss = (module.logarithm.exp() * (entropy - wanted)).mean()
        self.descend("temperature", loss, {"temperature_loss": loss}, {"entropy": entropy}, len(entropy))


def check_policy(policy: Policy) -> None:
    """Raise ConfigurationError for a policy that SAC does not train."""
    distribution = policy.distribution
    if isinstance(distribution, StateGaussian):
        return
    if isinstance(distribution, Categorical) and not isinstance(distribution, Greedy):
        return
    raise ConfigurationError(
        f"algorithm: 'sac' trains squashed gaussians over one Box with deviations of each state, and logits of "
        f"Discrete actions, not a {type(distribution).__name__} over {policy.action_space}; for a Box set "
        "network.box_actions={squashed: true, state_std: true}"
    )


@ALGORITHMS.register("sac")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> SAC:
    return SAC(policy, parse(SACConfig, "sac", config), seed)
