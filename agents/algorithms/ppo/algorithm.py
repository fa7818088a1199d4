"""Proximal policy optimisation, clipped: Schulman et al. 2017, as CleanRL and Stable-Baselines3 have it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agents.algorithms.at_once import AtOnce
from agents.algorithms.batches import Batch, Minibatch
from agents.algorithms.contract import Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.ppo.config import PPOConfig
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.native.learning import Loss
from agents.operators.advantages import generalized_advantage
from agents.operators.losses import (
    approximate_kl,
    clipped_surrogate,
    explained_variance,
    value_loss,
)
from agents.policies import Policy
from agents.trajectories import Trajectory

TAKEN = ("log_prob", "value", "target", "advantage")  # columns of the loss, without those of anchors


@dataclass(frozen=True)
class ByLibrary:
    """Computes minibatches' losses as `PPO._loss` does, and writes their gradients."""

    at_once: AtOnce
    loss: Loss

    def __call__(self, minibatch: Minibatch, advantage: Tensor) -> tuple[Tensor, dict[str, Tensor]] | None:
        """Return (loss, terms) for advantages [B], standardised if so configured; None where torch has to do it."""
        steps, columns = self.at_once.steps(minibatch), self.columns(minibatch.columns, advantage)
        return None if steps is None else self.at_once.gradient(steps, columns, self.loss)

    def columns(self, columns: Mapping[str, Tensor], advantage: Tensor) -> dict[str, Tensor]:
        """Return columns by the library's names."""
        return {**columns, "advantage": advantage, "old_value": columns["value"]}


@dataclass
class Begun:
    """An update before its first minibatch."""

    batch: Batch
    columns: dict[str, Tensor]
    learning_rate: float
    cuts: list[slice]
    by_library: ByLibrary | None


class PPO(GradientAlgorithm[PPOConfig]):
    """Several epochs of shuffled minibatches on each batch, the policy kept near the one that acted."""

    by_chance = True
    needs = Needs(fields=("extras.log_prob", "extras.value", "last.value", "cut.value"))

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make `epochs` passes over the trajectories in shuffled minibatches; metrics are means over minibatches.

        If the first minibatch already exceeds target_kl, the weights stay as they are, and the metrics are its own.
        """
        begun = self.begin(self.scaled(trajectories))
        history: list[dict[str, Tensor]] = []
        self.follow(begun, history)
        return self.end(begun, mean_terms(history))

    def begin(self, trajectories: Sequence[Trajectory]) -> Begun:
        """Return an update that has begun: its batch and its schedules' values, before the first minibatch.

        `trajectories`: as `scaled` returned them.
        """
        batch = Batch(self.policy, trajectories, burn_in=self.needs.burn_in)
        columns = self._columns(batch, trajectories)
        learning_rate = self.set_learning_rate()
        cuts = self.cuts(batch, self.config.minibatch_size)
        return Begun(batch, columns, learning_rate, cuts, self.by_library(batch, columns))

    def follow(self, begun: Begun, history: list[dict[str, Tensor]], orders: Sequence[Tensor] | Tensor = ()) -> None:
        """Learn from the minibatches that follow those in `history`, and add their terms to it.

        `orders`: the order of the steps in each pass, int64 [B]; drawn if none are given.
        """
        for epoch in range(self.config.epochs):
            order = orders[epoch] if len(orders) else torch.randperm(len(begun.batch), generator=self.generator)
            if not self._epoch(begun, epoch * len(begun.cuts), order, history):
                break

    def orders(self, size: int, out: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Draw the orders of `size` steps in all passes; return them, int64 [epochs, size], and the generator's states
        after each. `out`: where to write them."""
        orders, states = torch.empty(self.config.epochs, size, dtype=torch.int64) if out is None else out, []
        for order in orders:
            torch.randperm(size, generator=self.generator, out=order)
            states.append(self.generator.get_state())
        return orders, states

    def end(self, begun: Begun, metrics: dict[str, float]) -> Update:
        """End an update whose minibatches are learned from; `metrics`: the means of their terms."""
        batch, columns = begun.batch, begun.columns
        self.learned_from(batch, lambda: columns["target"])
        metrics["explained_variance"] = explained_variance(*batch.valid((columns["value"], columns["target"]))).item()
        return self.result(metrics, begun.learning_rate)

    def by_library(self, batch: Batch | Minibatch, columns: Collection[str]) -> ByLibrary | None:
        """Return a ByLibrary that computes minibatches' losses; None where torch has to."""
        config, anchored = self.config, self.anchored(columns, TAKEN)
        at_once = None if anchored is None else self.at_once(batch)
        if at_once is None or anchored is None:
            return None
        loss = Loss(
            config.value_coefficient, self.entropy_coefficient, config.clip_range, config.clip_range_value,
            anchored=anchored,
        )  # fmt: skip
        return ByLibrary(at_once, loss)

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
        advantages = batch.column(advantage)
        columns["target"] = advantages + columns["value"]  # TD(lambda) return
        columns["advantage"] = self.combined(advantages)
        return columns | self.lessons(batch)

    def _epoch(self, begun: Begun, first: int, order: Tensor, history: list[dict[str, Tensor]]) -> bool:
        """Make one pass over the batch; return False once the policy has moved further than target_kl allows.

        `first`: the number of its first minibatch; minibatches that `history` already has are skipped.
        """
        config = self.config
        for number, minibatch in enumerate(begun.batch.minibatches(begun.cuts, order, begun.columns), first):
            if number < len(history):
                continue
            recorded = minibatch.columns
            advantage = recorded["advantage"]
            if config.normalize_advantage:
                advantage = self.standardize(advantage)
            inputs: dict[str, Tensor] = {}
            at_once = None if begun.by_library is None else begun.by_library(minibatch, advantage)
            loss, terms = at_once or self._loss(minibatch, advantage, inputs)
            steps = len(advantage) if at_once else inputs["ratio"].numel()
            kl = terms["approx_kl"]
            if config.target_kl is not None:
                kl = terms["approx_kl"] = self.mean(kl, steps)
            if config.target_kl is not None and kl.item() > 1.5 * config.target_kl:
                if not history:  # too far already, as data of older weights may be: nothing is learned from it
                    history.append(_detached(terms | {"grad_norm": torch.zeros_like(kl)}))
                return False
            grad_norm = self.descend(loss, terms, recorded | inputs, len(history) + 1, steps)
            history.append(_detached(terms | {"grad_norm": grad_norm}))
        return True

    def _loss(
        self, minibatch: Minibatch, advantage: Tensor, inputs: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (loss with a gradient, its terms); add the tensors that it was computed from to `inputs`."""
        config, recorded = self.config, minibatch.columns
        log_prob, entropy, value, output = minibatch.evaluate(self.policy)
        log_ratio = log_prob - recorded["log_prob"]
        ratio = log_ratio.exp()
        inputs |= {"new log_prob": log_prob, "new value": value, "ratio": ratio}
        policy_term = clipped_surrogate(ratio, advantage, config.clip_range)
        value_term = value_loss(
            value, recorded["target"], recorded["value"], config.clip_range_value, self.policy.value_scale
        )
        entropy_term = entropy.mean()
        loss = policy_term + config.value_coefficient * value_term - self.entropy_coefficient * entropy_term
        with torch.no_grad():
            kl = approximate_kl(log_ratio, ratio)
            clip_fraction = ((ratio - 1).abs() > config.clip_range).float().mean()
        terms = {
            "policy_loss": policy_term, "value_loss": value_term, "entropy": entropy_term,
            "approx_kl": kl, "clip_fraction": clip_fraction,
        }  # fmt: skip
        return self.with_teacher(loss, terms, output, recorded), terms


def mean_terms(history: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Return the means of minibatches' terms."""
    means = torch.stack([torch.stack(list(terms.values())) for terms in history]).mean(0)
    return dict(zip(history[0], means.tolist(), strict=True))


def _detached(terms: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: term.detach() for name, term in terms.items()}


@ALGORITHMS.register("ppo")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> PPO:
    return PPO(policy, parse(PPOConfig, "ppo", config), seed)
