"""Proximal policy optimisation, clipped: Schulman et al. 2017, as CleanRL and Stable-Baselines3 have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Dict, Tuple
from torch import Tensor, nn

from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.operators.advantages import generalized_advantage
from agents.operators.losses import (
    approximate_kl,
    clipped_surrogate,
    explained_variance,
    standardize,
    value_loss,
)
from agents.operators.schedules import InverseSquareRoot, Linear
from agents.policies import Policy
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError


@dataclass(frozen=True)
class PPOConfig:
    """Settings of `ppo`."""

    # Optimisation
    learning_rate: float = 1.5e-3
    anneal_steps: int | None = None  # environment steps over which the rate falls linearly; null keeps it constant
    anneal_to: float = 0.0  # the fraction of learning_rate that it falls to
    epochs: int = 10
    minibatch_size: int = 256  # the last minibatch of an epoch is smaller where the batch is no multiple of it
    max_grad_norm: float = 0.5

    # Returns
    gamma: float = 0.99
    gae_lambda: float = 0.95

    # Loss
    clip_range: float = 0.2
    clip_range_value: float | None = None  # in units of the reward, hence off
    entropy_coefficient: float = 0.0
    entropy_decay_steps: int | None = None  # the coefficient falls by 1/sqrt(1 + steps/this); null keeps it constant
    value_coefficient: float = 0.5
    normalize_advantage: bool = True
    target_kl: float | None = None  # an update ends when a minibatch's KL exceeds 1.5 times this

    def __post_init__(self) -> None:
        allowed = {
            "learning_rate": ("above 0", self.learning_rate > 0),
            "anneal_steps": ("at least 1 or null", self.anneal_steps is None or self.anneal_steps >= 1),
            "anneal_to": ("within 0 and 1", 0 <= self.anneal_to <= 1),
            "epochs": ("at least 1", self.epochs >= 1),
            "minibatch_size": ("at least 2, or advantages have no spread", self.minibatch_size >= 2),
            "max_grad_norm": ("above 0", self.max_grad_norm > 0),
            "gamma": ("within 0 and 1", 0 <= self.gamma <= 1),
            "gae_lambda": ("within 0 and 1", 0 <= self.gae_lambda <= 1),
            "clip_range": ("above 0", self.clip_range > 0),
            "clip_range_value": ("above 0 or null", self.clip_range_value is None or self.clip_range_value > 0),
            "entropy_coefficient": ("at least 0", self.entropy_coefficient >= 0),
            "entropy_decay_steps": (
                "at least 1 or null",
                self.entropy_decay_steps is None or self.entropy_decay_steps >= 1,
            ),
            "value_coefficient": ("at least 0", self.value_coefficient >= 0),
            "target_kl": ("above 0 or null", self.target_kl is None or self.target_kl > 0),
        }
        problems = [
            f"{k}={getattr(self, k)} of ppo must be {text}" for k, (text, holds) in allowed.items() if not holds
        ]
        if problems:
            raise ConfigurationError(problems)


class Batch:
    """B = sum of T * N transitions as flat tensors: what one update shuffles and cuts into minibatches."""

    def __init__(self, policy: Policy, config: PPOConfig, trajectories: Sequence[Trajectory]) -> None:
        def flat(arrays: list[np.ndarray]) -> Tensor:
            joined = np.concatenate([array.reshape(-1, *array.shape[2:]) for array in arrays])
            return torch.from_numpy(joined).to(policy.device)

        self.observation = flat([t.observation for t in trajectories]).float()
        self.action = flat([t.action for t in trajectories])
        masks = [t.action_mask for t in trajectories if t.action_mask is not None]
        self.action_mask = flat(masks) if masks else None  # all trajectories have one or none has
        self.log_prob = flat([t.extras["log_prob"] for t in trajectories])
        self.value = flat([t.extras["value"] for t in trajectories])
        self.advantage = flat(
            [
                generalized_advantage(
                    t.reward, t.extras["value"], t.terminated, t.truncated, t.cut["value"], t.last["value"],
                    config.gamma, config.gae_lambda,
                )
                for t in trajectories
            ]
        )  # fmt: skip
        self.target = self.advantage + self.value  # TD(lambda) return

    def __len__(self) -> int:
        return len(self.value)


class PPO:
    """Trains `policy` in place; `seed` decides the order of the minibatches."""

    def __init__(self, policy: Policy, config: PPOConfig, seed: int) -> None:
        self.policy = policy
        self.config = config
        self.steps = 0  # environment steps trained on
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters = list(policy.parameters())
        # fused takes a third of the default's time on CPU; eps is that of the reference implementations.
        self.optimizer = torch.optim.Adam(self.parameters, config.learning_rate, eps=1e-5, fused=True)

    def update(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """`epochs` passes over the trajectories in shuffled minibatches; metrics are means over the minibatches.

        Where the first minibatch exceeds target_kl already, the weights stay as they are, and the metrics are of it.
        """
        batch = Batch(self.policy, self.config, trajectories)
        learning_rate = self._set_learning_rate()
        history: list[Tensor] = []
        for _ in range(self.config.epochs):
            if not self._epoch(batch, history):
                break
        self.steps += len(batch)
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")
        metrics = dict(zip(names, torch.stack(history).mean(0).tolist(), strict=True))
        metrics["explained_variance"] = explained_variance(batch.value, batch.target).item()
        metrics["learning_rate"] = learning_rate
        return metrics

    @property
    def entropy_coefficient(self) -> float:
        """As it is by now."""
        config = self.config
        if config.entropy_decay_steps is None:
            return config.entropy_coefficient
        return InverseSquareRoot(config.entropy_coefficient, config.entropy_decay_steps)(self.steps)

    def adjust(self, changes: Mapping[str, Any]) -> None:
        """Settings from now on, the others staying: a population's hyperparameters. Raises ConfigurationError."""
        if changes:
            self.config = parse(PPOConfig, "ppo", {**asdict(self.config), **changes})

    def begin_at(self, steps: int) -> None:
        """Schedules are where they are after `steps` environment steps."""
        self.steps = steps

    def _epoch(self, batch: Batch, history: list[Tensor]) -> bool:
        """One pass over the batch; False once the policy has moved further than target_kl allows."""
        config = self.config
        order = self._permutation(len(batch))
        columns = (batch.observation, batch.action, batch.log_prob, batch.value, batch.advantage, batch.target)
        # Shuffling once an epoch makes every minibatch a view.
        shuffled = [torch.split(column[order], config.minibatch_size) for column in columns]
        masks: Sequence[Tensor | None] = [None] * len(shuffled[0])
        if batch.action_mask is not None:
            masks = torch.split(batch.action_mask[order], config.minibatch_size)
        for observation, action, old_log_prob, old_value, advantage, target, mask in zip(*shuffled, masks, strict=True):
            log_prob, entropy, value, _ = self.policy.evaluate(observation, action, mask)
            log_ratio = log_prob - old_log_prob
            ratio = log_ratio.exp()
            if config.normalize_advantage:
                advantage = standardize(advantage)

            policy_term = clipped_surrogate(ratio, advantage, config.clip_range)
            value_term = value_loss(value, target, old_value, config.clip_range_value)
            entropy_term = entropy.mean()
            loss = policy_term + config.value_coefficient * value_term - self.entropy_coefficient * entropy_term

            with torch.no_grad():
                kl = approximate_kl(log_ratio, ratio)
                clip_fraction = ((ratio - 1).abs() > config.clip_range).float().mean()
            terms = (policy_term, value_term, entropy_term, kl, clip_fraction)
            if config.target_kl is not None and kl.item() > 1.5 * config.target_kl:
                if not history:  # too far already, as data of older weights may be: nothing is learned from it
                    history.append(torch.stack([*(term.detach() for term in terms), torch.zeros_like(kl)]))
                return False

            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            grad_norm = nn.utils.clip_grad_norm_(self.parameters, config.max_grad_norm)
            self.optimizer.step()
            history.append(torch.stack([term.detach() for term in (*terms, grad_norm)]))
        return True

    def _permutation(self, size: int) -> Tensor:
        return torch.randperm(size, generator=self.generator)

    def _set_learning_rate(self) -> float:
        config = self.config
        learning_rate = config.learning_rate
        if config.anneal_steps is not None:
            learning_rate *= Linear(1.0, config.anneal_to, config.anneal_steps)(self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        return learning_rate

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Adam's moments by parameter, the shuffling generator, and the count of steps."""
        tensors = {"generator": self.generator.get_state()}
        for name, parameter in self.policy.named_parameters():
            for key, tensor in self.optimizer.state[parameter].items():  # empty before the first update
                tensors[f"adam.{key}.{name}"] = tensor
        return tensors, {"steps": self.steps}

    def load_state(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Continues from what `state` returned; the policy's weights are loaded apart from it."""
        self.steps = int(scalars["steps"])
        self.generator.set_state(tensors["generator"])
        for name, parameter in self.policy.named_parameters():
            self.optimizer.state[parameter] = {
                key: tensors[f"adam.{key}.{name}"].to(parameter.device, copy=True)
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{key}.{name}" in tensors
            }


@ALGORITHMS.register("ppo")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> PPO:
    # A segment holds one array of observations and one of actions, and no memory.
    problems = [
        f"algorithm 'ppo' takes {kind} spaces of one leaf, not {space}; {remedy}"
        for kind, space, remedy in (
            ("observation", policy.observation_space, "gymnasium.wrappers.FlattenObservation makes a Box of it"),
            ("action", policy.action_space, "gymnasium.wrappers.TransformAction makes it MultiDiscrete or a Box"),
        )
        if isinstance(space, Dict | Tuple)
    ]
    if policy.has_memory:
        problems.append("algorithm 'ppo' trains networks without a memory; leave out the `core` of the network")
    if problems:
        raise ConfigurationError(problems)
    return PPO(policy, parse(PPOConfig, "ppo", config), seed)
