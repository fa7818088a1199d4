"""APPO: PPO's clipped epochs on V-trace's advantages, for data of older weights (IMPACT, Luo et al. 2020, as RLlib)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.algorithms.appo.config import APPOConfig
from agents.algorithms.appo.losses import appo_loss
from agents.algorithms.at_once import AtOnce
from agents.algorithms.batches import Batch, Minibatch
from agents.algorithms.contract import Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.native.learning import Loss
from agents.operators.losses import explained_variance
from agents.operators.vtrace import vtrace
from agents.policies import Policy
from agents.trajectories import Trajectory

TAKEN = ("log_prob", "target_log_prob", "value", "target", "advantage")  # columns of the loss, without those of anchors


class APPO(GradientAlgorithm[APPOConfig]):
    """V-trace once at the beginning of an update, then several epochs of shuffled minibatches; for streaming."""

    by_chance = True
    needs = Needs(fields=("extras.log_prob", "last.observation", "cut.value"), unrolls=True)

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make `epochs` passes over the trajectories in minibatches; metrics are means over the minibatches."""
        config = self.config
        learning_rate = self.set_learning_rate()
        trajectories = self.scaled(trajectories)
        batch = Batch(self.policy, trajectories, self.needs.unrolls, self.needs.burn_in)
        at_once = self.at_once(batch)
        columns, rho = self._corrected(batch, trajectories, at_once)
        if not self.policy.has_memory:
            batch, columns = batch.by_step(columns)
        how = None if at_once is None else self._by_library(columns)
        history: list[dict[str, Tensor]] = []
        cuts = self.cuts(batch, config.minibatch_size)
        for _ in range(config.epochs):
            order = torch.randperm(len(batch), generator=self.generator)
            for minibatch in batch.minibatches(cuts, order, columns):
                inputs = dict(minibatch.columns)
                advantage = inputs["advantage"]
                if config.normalize_advantage:
                    advantage = self.standardize(advantage)
                found = None
                if at_once is not None and how is not None and (steps := at_once.steps(minibatch)) is not None:
                    found = at_once.gradient(steps, self._renamed(inputs, advantage), how)
                loss, terms = found or self._loss(minibatch, advantage, inputs)
                history.append(
                    terms | {"grad_norm": self.descend(loss, terms, inputs, len(history) + 1, advantage.numel())}
                )
        self.learned_from(batch, lambda: columns["target"])
        metrics = {name: torch.stack([terms[name] for terms in history]).mean().item() for name in history[0]}
        metrics["explained_variance"] = explained_variance(*batch.valid((columns["value"], columns["target"]))).item()
        return self.result(metrics | {"rho": rho}, learning_rate)

    def _loss(
        self, minibatch: Minibatch, advantage: Tensor, inputs: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (loss with a gradient, its terms); add the tensors that it was computed from to `inputs`."""
        config, of = self.config, minibatch.columns
        log_prob, entropy, value, output = minibatch.evaluate(self.policy)
        inputs |= {"new log_prob": log_prob, "new value": value}
        loss, terms = appo_loss(
            log_prob,
            of["log_prob"],
            of["target_log_prob"],
            advantage,
            value,
            of["target"],
            entropy,
            clip_range=config.clip_range,
            value_coefficient=config.value_coefficient,
            entropy_coefficient=self.entropy_coefficient,
            target_clip=config.target_clip,
            value_scale=self.policy.value_scale,
        )
        return self.with_teacher(loss, terms, output, of), terms

    def _by_library(self, columns: Collection[str]) -> Loss | None:
        """Return the loss in the C library's form; None where torch has to compute it."""
        config, anchored = self.config, self.anchored(columns, TAKEN)
        if anchored is None:
            return None
        return Loss(config.value_coefficient, self.entropy_coefficient, config.clip_range, anchored=anchored)

    def _renamed(self, columns: dict[str, Tensor], advantage: Tensor) -> dict[str, Tensor]:
        """Return a minibatch's columns by the library's names."""
        weight = (columns["log_prob"] - columns["target_log_prob"]).exp().clamp(max=self.config.target_clip)
        return columns | {"advantage": advantage, "weight": weight, "since": columns["target_log_prob"]}

    def _corrected(
        self, batch: Batch, trajectories: Sequence[Trajectory], at_once: AtOnce | None
    ) -> tuple[dict[str, Tensor], float]:
        """Return (columns [T, N], which all epochs of the update use, the mean importance weight)."""
        config = self.config
        behaviour = batch.column([t.extras["log_prob"] for t in trajectories])
        with torch.no_grad():
            if at_once is not None and (steps := at_once.steps(batch)) is not None:
                unroll, log_prob = at_once.unroll(self.policy, batch, steps)
            else:
                unroll, said = batch.unroll(self.policy)
                log_prob = said.log_prob
            corrected = vtrace(unroll, log_prob, behaviour, config.gamma, config.rho_bar, config.c_bar, config.lambda_)
        columns = {
            "log_prob": behaviour,
            "target_log_prob": log_prob,
            "value": unroll.value,
            "target": corrected.target,
            "advantage": self.combined(corrected.advantage),
            **self.lessons(batch),
        }
        return columns, batch.valid(corrected.rho).mean().item()


@ALGORITHMS.register("appo")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> APPO:
    return APPO(policy, parse(APPOConfig, "appo", config), seed)
