"""Behaviour cloning: the likelihood of recorded actions is maximised (Pomerleau 1991), games being the only teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.algorithms.batches import Batch, Minibatch, without_idle_slots
from agents.algorithms.bc.config import BCConfig
from agents.algorithms.contract import FILE, Needs, Update
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.operators.losses import value_loss
from agents.policies import Policy
from agents.trajectories import Trajectory

RETURN = "return"  # in `extras` of recorded games: the discounted return from each step to its episode's end


class BC(GradientAlgorithm[BCConfig]):
    """Makes the actions of its trajectories likely among the legal ones, whichever policy chose them.

    With a teacher KL(teacher || student) is added at the trajectories' states; if these are the student's own, it is
    DAgger's loss (Ross et al. 2011). Where the trajectories have RETURN, the value learns it.
    """

    by_chance = True
    needs = Needs(
        fields=(),
        source=FILE,
        because="learns from recorded games; clone them by python -m workers.imitate, or have a teacher decide at the "
        "states of this run's own games: algorithm.teacher=RUN algorithm.likelihood_coefficient=0",
    )

    def __init__(self, policy: Policy, config: BCConfig, seed: int) -> None:
        super().__init__(policy, config, seed)
        if config.teacher is not None and config.likelihood_coefficient == 0:
            self.needs = Needs(fields=())  # a teacher can be asked at the states of any policy

    def update(self, trajectories: Sequence[Trajectory]) -> Update:
        """Make `epochs` passes over the trajectories in shuffled minibatches; metrics are means over minibatches."""
        config = self.config
        learning_rate = self.set_learning_rate()
        trajectories = without_idle_slots(trajectories)
        batch = Batch(self.policy, trajectories)
        columns = self.lessons(batch)
        if all(RETURN in t.extras for t in trajectories):
            columns[RETURN] = batch.column([t.extras[RETURN] for t in trajectories])
        cuts, history = self.cuts(batch, config.minibatch_size), list[dict[str, Tensor]]()
        for _ in range(config.epochs):
            order = torch.randperm(len(batch), generator=self.generator)
            for minibatch in batch.minibatches(cuts, order, columns):
                history.append(self._step(minibatch, len(history) + 1))
        self.learned_from(batch, lambda: columns.get(RETURN))
        means = torch.stack([torch.stack(list(terms.values())) for terms in history]).mean(0)
        return self.result(dict(zip(history[0], means.tolist(), strict=True)), learning_rate)

    def _step(self, minibatch: Minibatch, number: int) -> dict[str, Tensor]:
        """Make one optimizer step; return the terms of its loss."""
        config, recorded = self.config, minibatch.columns
        log_prob, entropy, value, output = minibatch.evaluate(self.policy)
        likelihood_term, entropy_term = -log_prob.mean(), entropy.mean()
        terms = {"likelihood_loss": likelihood_term, "entropy": entropy_term}
        loss = config.likelihood_coefficient * likelihood_term - self.entropy_coefficient * entropy_term
        inputs = {"new log_prob": log_prob}
        if RETURN in recorded:
            terms["value_loss"] = value_loss(value, recorded[RETURN], scale=self.policy.value_scale)
            loss = loss + config.value_coefficient * terms["value_loss"]
            inputs |= {"new value": value, RETURN: recorded[RETURN]}
        loss = self.with_teacher(loss, terms, output, recorded)
        terms["grad_norm"] = self.descend(loss, terms, inputs, number, log_prob.numel())
        return {name: term.detach() for name, term in terms.items()}


@ALGORITHMS.register("bc")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> BC:
    return BC(policy, parse(BCConfig, "bc", config), seed)
