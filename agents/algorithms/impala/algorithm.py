"""IMPALA: Espeholt et al. 2018, an actor-critic that corrects by V-trace for older weights that acted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from agents.algorithms.batches import Batch
from agents.algorithms.contract import UNIFORM, Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.impala.config import IMPALAConfig
from agents.algorithms.impala.losses import impala_constants, impala_loss
from agents.algorithms.numbers import inputs_of
from agents.algorithms.one_step import Computed, by_library
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.native.learning import Loss
from agents.operators.unrolls import Unroll
from agents.operators.vtrace import vtrace
from agents.policies import Policy
from agents.trajectories import CUT_OBSERVATION, Trajectory


class IMPALA(GradientAlgorithm[IMPALAConfig]):
    """One step of the gradient on each batch, whichever weights acted; for streaming, or with a replay."""

    by_chance = True
    needs = Needs(fields=("extras.log_prob", "last.observation", "cut.value"), unrolls=True)

    def __init__(self, policy: Policy, config: IMPALAConfig, seed: int) -> None:
        super().__init__(policy, config, seed)
        if config.replay_length is not None:  # values of the weights that acted may be very old
            fields = ("extras.log_prob", "last.observation", CUT_OBSERVATION)
            self.needs = replace(self.needs, fields=fields, source=UNIFORM, length=config.replay_length)

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make one step on all trajectories; the metric `rho` is the mean importance weight."""
        config = self.config
        learning_rate = self.set_learning_rate()
        trajectories = self.scaled(trajectories)
        if not trajectories:  # a replay may draw unrolls in which no agent decides
            return Update({"learning_rate": learning_rate})
        batch = Batch(self.policy, trajectories, self.needs.unrolls, self.needs.burn_in)
        behaviour = batch.column([t.extras["log_prob"] for t in trajectories])
        loss = Loss(config.value_coefficient, self.entropy_coefficient, upgo_coefficient=config.upgo_coefficient)
        computed = by_library(self, batch, partial(self._constants, batch, behaviour), loss)
        computed = computed or self._by_torch(batch, behaviour)
        grad_norm = self.descend(*computed[2:], steps=batch.valid(behaviour).numel())
        bars = (config.rho_bar, config.c_bar, config.lambda_)
        self.learned_from(
            batch, lambda: vtrace(computed.unroll, computed.log_prob, behaviour, config.gamma, *bars).target
        )
        metrics = {name: term.item() for name, term in computed.terms.items()}
        return self.result(metrics | {"grad_norm": grad_norm.item()}, learning_rate)

    def _by_torch(self, batch: Batch, behaviour: Tensor) -> Computed:
        unroll, said = batch.unroll(self.policy)
        loss, terms = impala_loss(
            unroll,
            said.log_prob,
            behaviour,
            said.entropy,
            value_coefficient=self.config.value_coefficient,
            entropy_coefficient=self.entropy_coefficient,
            upgo_coefficient=self.config.upgo_coefficient,
            **self._settings(batch),
        )
        loss = self.with_teacher(loss, terms, *batch.valid((said.output, self.lessons(batch))))
        return Computed(
            unroll, said.log_prob, loss, terms, inputs_of(unroll, said.log_prob, said.entropy) | {"log_prob": behaviour}
        )

    def _constants(self, batch: Batch, behaviour: Tensor, unroll: Unroll, log_prob: Tensor) -> dict[str, Tensor]:
        upgo = bool(self.config.upgo_coefficient)
        return impala_constants(unroll, log_prob, behaviour, upgo=upgo, **self._settings(batch))

    def _settings(self, batch: Batch) -> dict[str, Any]:
        """Return the settings of the loss's constants."""
        config, policy = self.config, self.policy
        return {
            "gamma": config.gamma,
            "rho_bar": config.rho_bar,
            "c_bar": config.c_bar,
            "lambda_": config.lambda_,
            "standardize": self.standardize if config.normalize_advantage else None,
            "channel_coefficients": policy.channel_coefficients,
            "value_scale": policy.value_scale,
            "valid": batch.kept,
        }


@ALGORITHMS.register("impala")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> IMPALA:
    return IMPALA(policy, parse(IMPALAConfig, "impala", config), seed)
