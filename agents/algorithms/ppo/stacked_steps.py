"""Steps of stacked players: weights [P, ...], batched products, one Adam over [P, n]; on a GPU launched as graphs.

The tensors that steps read and write, and the graphs of steps, are kept from update to update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from agents.algorithms.anchors import PREFIXES
from agents.algorithms.ppo.captured import Captured
from agents.operators.divergences import categorical_kl
from agents.policies.categorical import Categorical

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "relu": torch.relu, "elu": functional.elu, "silu": functional.silu,
}  # fmt: skip
LEARNED, ENDED, FAILED = range(3)  # a minibatch: learned from; target_kl ended the update before it; not finite
LOGITS = Categorical(0)  # serves any number of actions: the methods used here do not depend on it
KEPT = 4  # stacks whose tensors and graphs are kept: those of a league's main agents, exploiters, ...
# Numbers that each player has of its own, besides the coefficients of its anchors.
NUMBERS = (
    "clip", "clip_value", "value", "entropy", "most_kl", "longest", "rate", "beta1", "beta2", "epsilon", "decay",
)  # fmt: skip
Layer = tuple[tuple[int, torch.Size], tuple[int, torch.Size]]  # (offset in [n], shape) of the weight, and of the bias


class Shape(NamedTuple):
    """The settings and shapes that stacked players have in common."""

    device: torch.device
    activation: str
    policy: tuple[Layer, ...]  # the last is the value's head, where the value has no layers of its own
    value: tuple[Layer, ...]
    masked: bool
    columns: tuple[str, ...]
    cuts: tuple[int, ...]
    epochs: int
    standardizes: bool
    clips_value: bool
    decoupled: bool

    @property
    def anchors(self) -> list[str]:
        """Names of the anchors that policies are kept near to."""
        return [name for name, prefix in PREFIXES.items() if prefix in self.columns]


class StackedSteps:
    """The weights of P players of one `Shape` with `size` numbers each, and steps of all of them."""

    def __init__(self, shape: Shape, players: int, size: int) -> None:
        self._shape, device = shape, shape.device
        self.values, self.mean, self.square = (torch.zeros(players, size, device=device) for _ in range(3))
        self.step_count = torch.zeros(players, dtype=torch.float64, device=device)
        self.status = torch.zeros(players, dtype=torch.int64, device=device)  # LEARNED, until the player ends or fails
        self.numbers = {  # float64 [P, 1]
            name: torch.zeros(players, 1, dtype=torch.float64, device=device) for name in (*NUMBERS, *shape.anchors)
        }
        state = self.values, self.mean, self.square, self.step_count, self.status
        self._launched = Captured(self.step, state) if device.type == "cuda" else self.step

    @classmethod
    def of(cls, shape: Shape, players: int, size: int) -> StackedSteps:
        """Return steps for such players, which their last user must be done with; the caller fills their tensors."""
        return _kept(shape, players, size)

    def __call__(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Make `step`, as a graph where that pays."""
        return self._launched(columns)

    def step(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Make a step of each player by its minibatch, columns [P, B, ...]; return the loss's terms, [P] each.

        Nothing waits for the device, and no tensor is replaced, so steps of equal shapes can be captured as a graph.
        """
        values = self.values.detach().requires_grad_()
        loss, terms = self._loss(values, columns)
        (gradient,) = torch.autograd.grad(loss.sum(), values)
        with torch.no_grad():
            norm = torch.linalg.vector_norm(gradient, dim=1)
            finite = torch.isfinite(loss + norm)
            beyond = terms["approx_kl"] > self.numbers["most_kl"][:, 0]
            now = torch.where(torch.isfinite(loss) & beyond, ENDED, torch.where(finite, LEARNED, FAILED))
            self.status.copy_(torch.where(self.status == LEARNED, now, self.status))
            self._descend(gradient, norm[:, None], (self.status == LEARNED)[:, None])
        return {name: term.detach() for name, term in terms.items()} | {"grad_norm": norm}

    def _layer(self, values: Tensor, place: tuple[int, torch.Size]) -> Tensor:
        start, shape = place
        return values[:, start : start + shape.numel()].view(len(values), *shape)

    def _linear(self, values: Tensor, layer: Layer, x: Tensor) -> Tensor:
        weight, bias = (self._layer(values, place) for place in layer)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))

    def _outputs(self, values: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits [P, B, A], values [P, B])."""
        activate = ACTIVATIONS[self._shape.activation]

        def after(layers: Sequence[Layer]) -> Tensor:
            y = x
            for layer in layers:
                y = activate(self._linear(values, layer, y))
            return y

        policy, value = self._shape.policy, self._shape.value
        if value:
            logits = self._linear(values, policy[-1], after(policy[:-1]))
            return logits, self._linear(values, value[-1], after(value[:-1])).squeeze(-1)
        last = after(policy[:-2])
        return self._linear(values, policy[-2], last), self._linear(values, policy[-1], last).squeeze(-1)

    def _loss(self, values: Tensor, columns: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (losses [P] with gradients, their terms [P])."""
        numbers = {name: vector.float() for name, vector in self.numbers.items()}
        output, value = self._outputs(values, columns["x"])
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
        return loss, terms

    def _descend(self, gradient: Tensor, norm: Tensor, learns: Tensor) -> None:
        """Make Adam's step [P, n] of the players that `learns` bool [P, 1] names."""
        n, values = self.numbers, self.values
        gradient = gradient * (n["longest"] / (norm + 1e-6)).clamp(max=1.0).float()
        self.step_count += learns[:, 0]
        steps = self.step_count[:, None]
        root = (1 - n["beta2"] ** steps).sqrt().float()
        size = (n["rate"] / (1 - n["beta1"] ** steps)).float()
        if self._shape.decoupled:
            kept = values * (1 - n["rate"] * n["decay"]).float()
        else:
            kept, gradient = values, gradient + n["decay"].float() * values
        mean = torch.lerp(self.mean, gradient, (1 - n["beta1"]).float())
        square = n["beta2"].float() * self.square + (1 - n["beta2"]).float() * gradient.square()
        stepped = kept - size * mean / (square.sqrt() / root + n["epsilon"].float())
        for place, now in ((self.mean, mean), (self.square, square), (values, stepped)):
            place.copy_(torch.where(learns, now, place))


@lru_cache(KEPT)
def _kept(shape: Shape, players: int, size: int) -> StackedSteps:
    return StackedSteps(shape, players, size)
