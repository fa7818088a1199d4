"""Steps of stacked players: batched products, one Adam over [P, n]; on a GPU launched as graphs.

The tensors that steps read and write, and the graphs of steps, are kept from update to update.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from agents.algorithms.anchors import PREFIXES
from agents.algorithms.captured import captured
from agents.algorithms.ppo.stacked_shape import Shape
from agents.operators.divergences import categorical_kl
from agents.policies.categorical import Categorical

LEARNED, ENDED, FAILED = range(3)  # a minibatch: learned from; target_kl ended the update before it; not finite
LOGITS = Categorical(0)  # serves any number of actions: the methods used here do not depend on it
KEPT = 4  # stacks whose tensors and graphs are kept: those of a league's main agents, exploiters, ...
# Numbers that each player has of its own, besides the coefficients of its anchors.
NUMBERS = (
    "clip", "clip_value", "value", "entropy", "most_kl", "longest", "rate", "beta1", "beta2", "epsilon", "decay",
    "gamma", "gae_lambda",
)  # fmt: skip
TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


class StackedSteps:
    """The weights and the batches of P players of one `Shape`, and steps of all of them."""

    def __init__(self, shape: Shape, players: int) -> None:
        self._shape, self.players, device = shape, players, shape.device
        self.values, self.mean, self.square = (torch.zeros(players, shape.size, device=device) for _ in range(3))
        self.step_count = torch.zeros(players, dtype=torch.float64, device=device)
        self.status = torch.zeros(players, dtype=torch.int64, device=device)  # LEARNED, until the player ends or fails
        names = (*NUMBERS, *shape.anchors)
        self.exact = torch.zeros(len(names), players, 1, dtype=torch.float64, device=device)
        self._rounded = torch.zeros(len(names), players, 1, device=device)
        self.numbers = dict(zip(names, self.exact, strict=True))  # float64 [P, 1]
        self._floats = dict(zip(names, self._rounded, strict=True))
        self.columns = self._columns()  # [P * steps, ...], the players one after the other
        # Of all minibatches one after the other: the rows of the columns.
        self.order = torch.zeros(players, shape.epochs * shape.valid, dtype=torch.int64, device=device)
        self._place, self._number = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.term_names = (*TERMS, *(f"{name}_kl" for name in shape.anchors), "grad_norm")
        # The terms of each minibatch, and the players' status after it.
        self.told = torch.zeros(shape.minibatches, len(self.term_names) + 1, players, device=device)
        state = self.values, self.mean, self.square, self.step_count, self.status, self._place, self._number, self.told
        self._launched = captured(self.step, state, device)

    @classmethod
    def of(cls, shape: Shape, players: int) -> StackedSteps:
        """Return steps for such players, which their last user must be done with; the caller fills their tensors."""
        return _kept(shape, players)

    def _columns(self) -> dict[str, Tensor]:
        shape, nets = self._shape, self._shape.nets
        rows, device = self.players * shape.steps, shape.device
        found = {"x": torch.zeros(rows, nets.inputs, device=device)}
        found["action"] = torch.zeros(rows, dtype=torch.int64, device=device)
        if shape.masked:
            found["mask"] = torch.zeros(rows, nets.actions, dtype=torch.bool, device=device)
        found |= {name: torch.zeros(rows, device=device) for name in ("log_prob", "value", "target", "advantage")}
        return found | {PREFIXES[name]: torch.zeros(rows, nets.actions, device=device) for name in shape.anchors}

    def of_players(self, name: str) -> Tensor:
        """Return a column as [P, steps, ...]."""
        column = self.columns[name]
        return column.view(self.players, self._shape.steps, *column.shape[1:])

    def begin(self) -> None:
        """Go to the first minibatch; the numbers, the weights and the moments are in their places."""
        self._rounded.copy_(self.exact)
        for tensor in (self.status, self._place, self._number):
            tensor.zero_()

    def __call__(self, rows: int) -> None:
        """Make `step`, as a graph where that pays."""
        self._launched(rows)

    def step(self, rows: int) -> None:
        """Make a step of each player by its next minibatch, of `rows` rows, and tell its terms.

        Nothing waits for the device, and no tensor is replaced, so steps of equal shapes can be captured as a graph.
        """
        here = self._place + torch.arange(rows, device=self._shape.device)
        index = self.order.index_select(1, here).flatten()
        columns = {
            name: column.index_select(0, index).view(self.players, rows, *column.shape[1:])
            for name, column in self.columns.items()
        }
        parameters = [one.detach().requires_grad_() for one in self._shape.nets.parameters(self.values)]
        loss, terms = self._loss(parameters, columns)
        gradients = torch.autograd.grad(loss.sum(), parameters)
        with torch.no_grad():
            gradient = self._shape.nets.joined(gradients, self._shape.size)
            norm = torch.linalg.vector_norm(gradient, dim=1)
            finite = torch.isfinite(loss + norm)
            beyond = terms["approx_kl"] > self.numbers["most_kl"][:, 0]
            now = torch.where(torch.isfinite(loss) & beyond, ENDED, torch.where(finite, LEARNED, FAILED))
            self.status.copy_(torch.where(self.status == LEARNED, now, self.status))
            self._descend(gradient, norm[:, None], (self.status == LEARNED)[:, None])
            told = torch.stack([*(terms | {"grad_norm": norm}).values(), self.status.float()])
            self.told.index_copy_(0, self._number, told[None])
            self._place += rows
            self._number += 1

    def _loss(self, parameters: list[Tensor], columns: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (losses [P] with gradients, their terms [P])."""
        numbers = self._floats
        output, value = self._shape.nets.outputs(parameters, columns["x"])
        if self._shape.masked:
            output = LOGITS.masked(output, columns["mask"])
        log_prob, entropy = LOGITS.log_prob_entropy(output, columns["action"])
        advantage = columns["advantage"]
        if self._shape.standardizes:
            deviation, mean = torch.std_mean(advantage, 1, keepdim=True)
            advantage = (advantage - mean) / (deviation + 1e-8) if advantage.shape[1] > 1 else advantage
        change = log_prob - columns["log_prob"]
        ratio = change.exp()
        cut = torch.clamp(ratio, 1 - numbers["clip"], 1 + numbers["clip"])
        policy_term = -torch.min(ratio * advantage, cut * advantage).mean(1)
        errors = (value - columns["target"]).square()
        if self._shape.clips_value:
            moved = torch.clamp(value - columns["value"], -numbers["clip_value"], numbers["clip_value"])
            errors = torch.max(errors, (columns["value"] + moved - columns["target"]).square())
        terms = {"policy_loss": policy_term, "value_loss": errors.mean(1), "entropy": entropy.mean(1)}
        terms["approx_kl"] = (ratio - 1 - change).mean(1).detach()
        terms["clip_fraction"] = ((ratio - 1).abs() > numbers["clip"]).float().mean(1)
        loss = policy_term + numbers["value"][:, 0] * terms["value_loss"] - numbers["entropy"][:, 0] * terms["entropy"]
        for name in self._shape.anchors:
            anchor = columns[PREFIXES[name]]
            kl = categorical_kl(anchor, output) if name == "teacher" else categorical_kl(output, anchor)
            terms[f"{name}_kl"] = kl.mean(1)
            loss = loss + numbers[name][:, 0] * terms[f"{name}_kl"]
        return loss, {name: term.detach() for name, term in terms.items()}

    def _descend(self, gradient: Tensor, norm: Tensor, learns: Tensor) -> None:
        """Make Adam's step of the players that `learns` bool [P, 1] names, down `gradient` [P, n].

        Each large tensor is gone through as seldom as possible: players that do not learn have a gradient of 0, and
        factors that change nothing.
        """
        n, values = self.numbers, self.values
        self.step_count += learns[:, 0]
        steps = self.step_count[:, None]
        clipped = (n["longest"] / (norm + 1e-6)).clamp(max=1.0)
        gradient = torch.where(learns, gradient, 0.0).mul_(torch.where(learns, clipped, 0.0).float())
        if self._shape.decoupled:
            values.mul_((1 - n["rate"] * n["decay"] * learns).float())
        elif self._shape.decays:
            gradient.addcmul_(values, (n["decay"] * learns).float())
        self.mean.lerp_(gradient, ((1 - n["beta1"]) * learns).float())
        self.square.lerp_(gradient.square_(), ((1 - n["beta2"]) * learns).float())
        root, size = (1 - n["beta2"] ** steps).sqrt(), n["rate"] / (1 - n["beta1"] ** steps)
        # A step is mean / (sqrt(square) / (root * size) + epsilon / size), or mean / infinity.
        moves = learns & (size > 0)
        per_root = torch.where(moves, 1 / (root * size), 1.0).float()
        least = torch.where(moves, n["epsilon"] / size, torch.inf).float()
        values.addcdiv_(self.mean, torch.addcmul(least, self.square.sqrt(), per_root), value=-1)


def forget() -> None:
    """Drop all tensors and graphs that are kept."""
    _kept.cache_clear()


@lru_cache(KEPT)
def _kept(shape: Shape, players: int) -> StackedSteps:
    return StackedSteps(shape, players)
