"""Proximal policy optimisation, clipped: Schulman et al. 2017, as CleanRL and Stable-Baselines3 have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from gymnasium.spaces import Dict, Tuple
from torch import Tensor, nn

from agents.algorithms.batches import Batch
from agents.algorithms.ppo.config import PPOConfig
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
        batch = Batch(self.policy, trajectories)
        columns = self._columns(batch, trajectories)
        learning_rate = self._set_learning_rate()
        history: list[Tensor] = []
        for _ in range(self.config.epochs):
            if not self._epoch(batch, columns, history):
                break
        self.steps += batch.steps
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")
        metrics = dict(zip(names, torch.stack(history).mean(0).tolist(), strict=True))
        metrics["explained_variance"] = explained_variance(columns["value"], columns["target"]).item()
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

    def _columns(self, batch: Batch, trajectories: Sequence[Trajectory]) -> dict[str, Tensor]:
        config = self.config
        advantage = [
            generalized_advantage(
                t.reward, t.extras["value"], t.terminated, t.truncated, t.cut["value"], t.last["value"],
                config.gamma, config.gae_lambda,
            )
            for t in trajectories
        ]  # fmt: skip
        columns = {name: batch.column([t.extras[name] for t in trajectories]) for name in ("log_prob", "value")}
        columns["advantage"] = batch.column(advantage)
        columns["target"] = columns["advantage"] + columns["value"]  # TD(lambda) return
        return columns

    def _epoch(self, batch: Batch, columns: dict[str, Tensor], history: list[Tensor]) -> bool:
        """One pass over the batch; False once the policy has moved further than target_kl allows."""
        config = self.config
        for minibatch in batch.minibatches(config.minibatch_size, self._permutation(len(batch)), columns):
            of_actors = minibatch.columns
            advantage = of_actors["advantage"]
            log_prob, entropy, value, _ = minibatch.evaluate(self.policy)
            log_ratio = log_prob - of_actors["log_prob"]
            ratio = log_ratio.exp()
            if config.normalize_advantage:
                advantage = standardize(advantage)

            policy_term = clipped_surrogate(ratio, advantage, config.clip_range)
            value_term = value_loss(value, of_actors["target"], of_actors["value"], config.clip_range_value)
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
    problems = [
        f"algorithm 'ppo' takes {kind} spaces of one leaf, not {space}; {remedy}"
        for kind, space, remedy in (
            ("observation", policy.observation_space, "gymnasium.wrappers.FlattenObservation makes a Box of it"),
            ("action", policy.action_space, "gymnasium.wrappers.TransformAction makes it MultiDiscrete or a Box"),
        )
        if isinstance(space, Dict | Tuple)  # samplers collect one array of observations and one of actions
    ]
    if problems:
        raise ConfigurationError(problems)
    return PPO(policy, parse(PPOConfig, "ppo", config), seed)
