"""Advantage actor-critic: Mnih et al. 2016 (A3C), computed synchronously."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from agents.algorithms.a2c.config import A2CConfig
from agents.algorithms.a2c.losses import a2c_constants, a2c_loss
from agents.algorithms.batches import Batch
from agents.algorithms.contract import GATHERED, Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.numbers import inputs_of
from agents.algorithms.one_step import Computed, by_library
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.native.learning import Loss
from agents.operators.returns import lambda_return
from agents.operators.unrolls import Unroll
from agents.policies import Policy
from agents.trajectories import Trajectory


class A2C(GradientAlgorithm[A2CConfig]):
    """One gradient step per batch, best with short unrolls of many environments (`unroll_length=5`)."""

    by_chance = True
    needs = Needs(
        fields=("last.observation", "cut.value"),
        unrolls=True,
        sampling=(GATHERED,),
        because="takes the gradient of the weights that acted",
    )

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make one gradient step on all trajectories, sampled by the current weights; return its metrics."""
        learning_rate = self.set_learning_rate()
        trajectories = self.scaled(trajectories)
        batch = Batch(self.policy, trajectories, unrolled=self.needs.unrolls)
        loss = Loss(self.config.value_coefficient, self.entropy_coefficient)
        computed = by_library(self, batch, partial(self._constants, batch), loss) or self._by_torch(batch)
        grad_norm = self.descend(*computed[2:], steps=batch.steps)
        self.learned_from(batch, lambda: lambda_return(computed.unroll, self.config.gamma, self.config.gae_lambda))
        metrics = {name: term.item() for name, term in computed.terms.items()}
        return self.result(metrics | {"grad_norm": grad_norm.item()}, learning_rate)

    def _by_torch(self, batch: Batch) -> Computed:
        unroll, said = batch.unroll(self.policy)
        loss, terms = a2c_loss(
            unroll,
            said.log_prob,
            said.entropy,
            value_coefficient=self.config.value_coefficient,
            entropy_coefficient=self.entropy_coefficient,
            **self._settings(batch),
        )
        loss = self.with_teacher(loss, terms, *batch.valid((said.output, self.lessons(batch))))
        return Computed(unroll, said.log_prob, loss, terms, inputs_of(unroll, said.log_prob, said.entropy))

    def _constants(self, batch: Batch, unroll: Unroll, _: Tensor) -> dict[str, Tensor]:
        return dict(zip(("target", "advantage"), a2c_constants(unroll, **self._settings(batch)), strict=True))

    def _settings(self, batch: Batch) -> dict[str, Any]:
        """Return the settings of the loss's constants."""
        config, policy = self.config, self.policy
        return {
            "gamma": config.gamma,
            "gae_lambda": config.gae_lambda,
            "standardize": self.standardize if config.normalize_advantage else None,
            "channel_coefficients": policy.channel_coefficients,
            "value_scale": policy.value_scale,
            "valid": batch.kept,
        }


@ALGORITHMS.register("a2c")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> A2C:
    return A2C(policy, parse(A2CConfig, "a2c", config), seed)
