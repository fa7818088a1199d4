"""Advantage actor-critic: Mnih et al. 2016 (A3C), computed synchronously."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.algorithms.a2c.config import A2CConfig
from agents.algorithms.a2c.losses import a2c_loss
from agents.algorithms.batches import Batch
from agents.algorithms.contract import GATHERED, Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.numbers import inputs_of
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.operators.returns import lambda_return
from agents.policies import Policy
from agents.trajectories import Trajectory


class A2C(GradientAlgorithm[A2CConfig]):
    """One gradient step per batch, best with short unrolls of many environments (`unroll_length=5`)."""

    needs = Needs(
        fields=("last.observation", "cut.value"),
        unrolls=True,
        sampling=(GATHERED,),
        because="takes the gradient of the weights that acted",
    )

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make one gradient step on all trajectories, sampled by the current weights; return its metrics."""
        config = self.config
        learning_rate = self.set_learning_rate()
        trajectories = self.scaled(trajectories)
        batch = Batch(self.policy, trajectories, unrolled=self.needs.unrolls)
        unroll, said = batch.unroll(self.policy, self.pays_entropy)
        loss, terms = a2c_loss(
            unroll,
            said.log_prob,
            said.entropy,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            value_coefficient=config.value_coefficient,
            entropy_coefficient=self.entropy_coefficient,
            standardize=self.standardize if config.normalize_advantage else None,
            channel_coefficients=self.policy.channel_coefficients,
            value_scale=self.policy.value_scale,
            valid=batch.kept,
        )
        loss = self.with_teacher(loss, terms, *batch.valid((said.output, self.lessons(batch))))
        grad_norm = self.descend(loss, terms, inputs_of(unroll, said), steps=batch.steps)
        self.learned_from(batch, lambda: lambda_return(unroll, config.gamma, config.gae_lambda))
        metrics = {name: term.item() for name, term in terms.items()}
        return Update(metrics | {"grad_norm": grad_norm.item(), "learning_rate": learning_rate})


@ALGORITHMS.register("a2c")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> A2C:
    return A2C(policy, parse(A2CConfig, "a2c", config), seed)
