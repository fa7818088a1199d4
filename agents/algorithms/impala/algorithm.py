"""IMPALA: Espeholt et al. 2018, an actor-critic that corrects by V-trace for weights that acted and are older."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agents.algorithms.batches import Batch
from agents.algorithms.contract import UNIFORM, Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.impala.config import IMPALAConfig
from agents.algorithms.impala.losses import impala_loss
from agents.algorithms.numbers import inputs_of
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.operators.vtrace import vtrace
from agents.policies import Policy
from agents.trajectories import Trajectory


class IMPALA(GradientAlgorithm[IMPALAConfig]):
    """One step of the gradient on each batch, whichever weights acted; for streaming, or with a replay."""

    needs = Needs(fields=("extras.log_prob", "last.observation", "cut.value"), unrolls=True)

    def __init__(self, policy: Policy, config: IMPALAConfig, seed: int) -> None:
        super().__init__(policy, config, seed)
        if config.replay_length is not None:
            self.needs = replace(self.needs, source=UNIFORM, length=config.replay_length)

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make one step on all trajectories; the metric `rho` is the mean importance weight."""
        config = self.config
        learning_rate = self.set_learning_rate()
        trajectories = self.scaled(trajectories)
        batch = Batch(self.policy, trajectories, self.needs.unrolls, self.needs.burn_in)
        unroll, said = batch.unroll(self.policy, self.pays_entropy)
        behaviour = batch.column([t.extras["log_prob"] for t in trajectories])
        loss, terms = impala_loss(
            unroll,
            said.log_prob,
            behaviour,
            said.entropy,
            gamma=config.gamma,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
            lambda_=config.lambda_,
            value_coefficient=config.value_coefficient,
            entropy_coefficient=self.entropy_coefficient,
            upgo_coefficient=config.upgo_coefficient,
            standardize=self.standardize if config.normalize_advantage else None,
            channel_coefficients=self.policy.channel_coefficients,
            value_scale=self.policy.value_scale,
            valid=batch.kept,
        )
        loss = self.with_teacher(loss, terms, *batch.valid((said.output, self.lessons(batch))))
        inputs = inputs_of(unroll, said) | {"log_prob": behaviour}
        grad_norm = self.descend(loss, terms, inputs, steps=batch.valid(behaviour).numel())
        bars = (config.rho_bar, config.c_bar, config.lambda_)
        self.learned_from(batch, lambda: vtrace(unroll, said.log_prob, behaviour, config.gamma, *bars).target)
        metrics = {name: term.item() for name, term in terms.items()}
        return Update(metrics | {"grad_norm": grad_norm.item(), "learning_rate": learning_rate})


@ALGORITHMS.register("impala")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> IMPALA:
    return IMPALA(policy, parse(IMPALAConfig, "impala", config), seed)
