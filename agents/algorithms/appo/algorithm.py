"""APPO: PPO's clipped epochs on V-trace's advantages, for data of older weights (IMPACT, Luo et al. 2020, as RLlib)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.algorithms.appo.config import APPOConfig
from agents.algorithms.appo.losses import appo_loss
from agents.algorithms.batches import Batch
from agents.algorithms.contract import Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.operators.losses import explained_variance
from agents.operators.vtrace import vtrace
from agents.policies import Policy
from agents.trajectories import Trajectory


class APPO(GradientAlgorithm[APPOConfig]):
    """V-trace once at the beginning of an update, then several epochs of shuffled minibatches; for streaming."""

    needs = Needs(fields=("extras.log_prob", "last.observation", "cut.value"), unrolls=True)

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make `epochs` passes over the trajectories in minibatches; metrics are means over the minibatches."""
        config = self.config
        learning_rate = self.set_learning_rate()
        trajectories = self.scaled(trajectories)
        batch = Batch(self.policy, trajectories, self.needs.unrolls, self.needs.burn_in)
        columns, rho = self._corrected(batch, trajectories)
        if not self.policy.has_memory:
            batch, columns = batch.by_step(columns)
        history: list[dict[str, Tensor]] = []
        scale = self.policy.value_scale
        cuts = self.cuts(batch, config.minibatch_size)
        for _ in range(config.epochs):
            order = torch.randperm(len(batch), generator=self.generator)
            for minibatch in batch.minibatches(cuts, order, columns):
                of = minibatch.columns
                log_prob, entropy, value, output = minibatch.evaluate(self.policy, self.pays_entropy)
                loss, terms = appo_loss(
                    log_prob,
                    of["log_prob"],
                    of["target_log_prob"],
                    self.standardize(of["advantage"]) if config.normalize_advantage else of["advantage"],
                    value,
                    of["target"],
                    entropy,
                    clip_range=config.clip_range,
                    value_coefficient=config.value_coefficient,
                    entropy_coefficient=self.entropy_coefficient,
                    target_clip=config.target_clip,
                    value_scale=scale,
                )
                loss = self.with_teacher(loss, terms, output, of)
                inputs = of | {"new log_prob": log_prob, "new value": value}
                history.append(
                    terms | {"grad_norm": self.descend(loss, terms, inputs, len(history) + 1, log_prob.numel())}
                )
        self.learned_from(batch, lambda: columns["target"])
        metrics = {name: torch.stack([terms[name] for terms in history]).mean().item() for name in history[0]}
        metrics["explained_variance"] = explained_variance(*batch.valid((columns["value"], columns["target"]))).item()
        return Update(metrics | {"rho": rho, "learning_rate": learning_rate})

    def _corrected(self, batch: Batch, trajectories: Sequence[Trajectory]) -> tuple[dict[str, Tensor], float]:
        """Return columns [T, N], which stay as they are over the epochs, and the mean importance weight."""
        config = self.config
        behaviour = batch.column([t.extras["log_prob"] for t in trajectories])
        with torch.no_grad():
            unroll, said = batch.unroll(self.policy, exact_entropy=False)
            corrected = vtrace(
                unroll, said.log_prob, behaviour, config.gamma, config.rho_bar, config.c_bar, config.lambda_
            )
        columns = {
            "log_prob": behaviour,
            "target_log_prob": said.log_prob,
            "value": said.value,
            "target": corrected.target,
            "advantage": self.combined(corrected.advantage),
            **self.lessons(batch),
        }
        return columns, batch.valid(corrected.rho).mean().item()


@ALGORITHMS.register("appo")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> APPO:
    return APPO(policy, parse(APPOConfig, "appo", config), seed)
