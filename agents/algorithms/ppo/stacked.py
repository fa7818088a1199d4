"""Players of alike perceptrons as one: weights [P, ...], batched products, one Adam over [P, n]; for a GPU.

A stack is made of what players have when an update begins, and hands it back when it ends. Settings that differ between
players are vectors [P]. What becomes of a player stays on the device meanwhile: after a loss that is not finite or a KL
beyond target_kl, its steps change nothing. So the processor waits for the device once an update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from agents.algorithms.adam import Adam
from agents.algorithms.anchors import PREFIXES
from agents.algorithms.ppo.algorithm import PPO, Begun, mean_terms
from agents.algorithms.ppo.captured import LEAST, Captured
from agents.networks.network import Perceptrons
from agents.operators.divergences import categorical_kl
from agents.policies.categorical import Categorical

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "relu": torch.relu, "elu": functional.elu, "silu": functional.silu,
}  # fmt: skip
LEARNED, ENDED, FAILED = range(3)  # what became of a minibatch: target_kl ended the update before it, or it had a NaN
Layer = tuple[tuple[int, torch.Size], tuple[int, torch.Size]]  # where weight and bias begin in [n], their shapes


class Shape(NamedTuple):
    """The settings and shapes that stacked players have in common."""

    device: torch.device
    activation: str
    policy: tuple[Layer, ...]  # of a value without layers of its own: its head is the last of these
    value: tuple[Layer, ...]
    masked: bool
    columns: tuple[str, ...]
    cuts: tuple[int, ...]
    epochs: int
    standardizes: bool
    clips_value: bool
    decoupled: bool


def shape_of(algorithm: PPO, begun: Begun) -> Shape | None:
    """Return what a player has to share with others to be stacked with them; None where it is updated alone."""
    policy, config, optimizer = algorithm.policy, algorithm.config, algorithm.descent.optimizer
    batch = begun.batch
    if type(optimizer) is not Adam or algorithm.descent.factors is not None or algorithm.peers.size > 1:
        return None
    if batch.begins is not None or not policy.computes_plainly or config.teacher_heads is not None:
        return None
    if type(policy.distribution) is not Categorical or policy.channels or policy.value_scale is not None:
        return None
    found = policy.network.perceptrons(True)
    if found is None or found.value is None or found.policy.activation not in ACTIVATIONS:
        return None
    of_policy, of_value = _places(algorithm, found)
    return Shape(
        policy.device, found.policy.activation, of_policy, of_value, batch.action_mask is not None,
        tuple(begun.columns), (0, *(cut.stop for cut in begun.cuts)), config.epochs, config.normalize_advantage,
        config.clip_range_value is not None, optimizer.decoupled,
    )  # fmt: skip


def _places(algorithm: PPO, found: Perceptrons) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    parameters = algorithm.descent.parameters
    starts = dict(parameters.split(torch.arange(parameters.values.numel())))
    names = {id(parameter): name for name, parameter in algorithm.policy.named_parameters()}

    def place(parameter: Tensor) -> tuple[int, torch.Size]:
        return int(starts[names[id(parameter)]].flatten()[0]), parameter.shape

    def places(layers: Sequence[tuple[Tensor, Tensor]]) -> tuple[Layer, ...]:
        return tuple((place(weight), place(bias)) for weight, bias in layers)

    return places(found.of_policy), () if found.value is found.policy else places(found.of_value)


class Stack:
    """The update of P players of one `Shape`."""

    def __init__(self, shape: Shape, players: Sequence[tuple[PPO, Begun]]) -> None:
        self._shape, self._players = shape, players
        optimizers = [algorithm.descent.optimizer for algorithm, _ in players]
        for optimizer in optimizers:
            assert isinstance(optimizer, Adam)
            optimizer.begin()
        self.values = torch.stack([optimizer.values.detach() for optimizer in optimizers])
        self.mean, self.square = (
            torch.stack([optimizer.state[name] for optimizer in optimizers]) for name in Adam.moments
        )
        self.step_count = torch.stack([optimizer.state["step"] for optimizer in optimizers]).double()
        self.status = torch.full((len(players),), LEARNED, device=shape.device)
        self._orders, self._states = zip(*(algorithm.orders(begun) for algorithm, begun in players), strict=True)
        self._anchors = [name for name, prefix in PREFIXES.items() if prefix in shape.columns]
        self.numbers = {name: self._vector(name) for name in self._named()}

    def _named(self) -> dict[str, Callable[[PPO, Begun], float]]:
        """Return what gives each number that is a player's own."""
        clip_value = (lambda p, _: p.config.clip_range_value) if self._shape.clips_value else (lambda *_: 0.0)
        named: dict[str, Callable[[PPO, Begun], Any]] = {
            "clip": lambda p, _: p.config.clip_range,
            "clip_value": clip_value,
            "value": lambda p, _: p.config.value_coefficient,
            "entropy": lambda p, _: p.entropy_coefficient,
            "most_kl": lambda p, _: float("inf") if p.config.target_kl is None else 1.5 * p.config.target_kl,
            "longest": lambda p, _: p.config.max_grad_norm,
            "rate": lambda _, begun: begun.learning_rate,
            "beta1": lambda p, _: p.config.adam_beta1,
            "beta2": lambda p, _: p.config.adam_beta2,
            "epsilon": lambda p, _: p.config.adam_epsilon,
            "decay": lambda p, _: p.config.weight_decay,
        }
        anchors = {name: (lambda p, _, name=name: p.anchor_coefficient(name)) for name in self._anchors}
        return named | anchors

    def _vector(self, name: str) -> Tensor:
        """Return the number of each player, float64 [P, 1]."""
        numbers = [self._named()[name](*player) for player in self._players]
        return torch.tensor(numbers, dtype=torch.float64, device=self._shape.device)[:, None]

    def run(self) -> None:
        """Make all steps, and hand weights and moments back."""
        columns, cuts = self._columns(), list(pairwise(self._shape.cuts))
        places = torch.arange(len(self._players), device=self._shape.device)[:, None]
        many = self._shape.device.type == "cuda" and self._shape.epochs * len(cuts) >= LEAST
        state = self.values, self.mean, self.square, self.step_count, self.status
        step = Captured(self.step, state) if many else self.step
        told, became = [], []
        for epoch in range(self._shape.epochs):
            order = torch.stack([orders[epoch] for orders in self._orders]).to(self._shape.device)
            shuffled = {name: column[places, order] for name, column in columns.items()}
            for start, stop in cuts:
                told.append(step({name: column[:, start:stop] for name, column in shuffled.items()}))
                became.append(self.status.clone())
        self._hand_back()
        self._terms = {name: torch.stack([one[name] for one in told]).float().cpu() for name in told[0]}
        self._became = torch.stack(became).cpu()

    def metrics(self, place: int) -> dict[str, float]:
        """Return the means of a player's terms, after `run`. Raises NotFinite as `PPO.follow` does."""
        algorithm, begun = self._players[place]
        became = self._became[:, place]
        terms = {name: column[:, place] for name, column in self._terms.items()}
        learned = int((became == LEARNED).sum())
        if (became == FAILED).any():
            made = [{name: column[row] for name, column in terms.items()} for row in range(learned)]
            algorithm.follow(begun, made, self._orders[place])  # the error of one alone says more
            return mean_terms(made)
        if learned < len(became):
            algorithm.generator.set_state(self._states[place][learned // (len(self._shape.cuts) - 1)])
            if not learned:  # the first was too far already
                terms["grad_norm"] = torch.zeros_like(terms["grad_norm"])
        return {name: column[: max(1, learned)].mean().item() for name, column in terms.items()}

    def _columns(self) -> dict[str, Tensor]:
        """Return all steps' columns of all players, [P, B, ...]."""
        batches = [begun.batch for _, begun in self._players]
        networks = [algorithm.policy.network for algorithm, _ in self._players]
        x = [network.flattened(batch.observation) for network, batch in zip(networks, batches, strict=True)]
        columns = {"x": torch.stack(x), "action": torch.stack([batch.action for batch in batches])}
        if self._shape.masked:
            columns["mask"] = torch.stack([mask for batch in batches if (mask := batch.action_mask) is not None])
        return columns | {
            name: torch.stack([begun.columns[name] for _, begun in self._players]) for name in self._shape.columns
        }

    def _hand_back(self) -> None:
        with torch.no_grad():
            for place, (algorithm, _) in enumerate(self._players):
                optimizer = algorithm.descent.optimizer
                optimizer.values.copy_(self.values[place])
                for name, moment in zip(Adam.moments, (self.mean, self.square), strict=True):
                    optimizer.state[name].copy_(moment[place])
                optimizer.state["step"].copy_(self.step_count[place])

    # One minibatch.

    def step(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Make a step of each player by its minibatch, columns [P, B, ...]; return the loss's terms, [P] each.

        Nothing waits for the device, and no tensor is replaced: steps of equal shapes can be captured as a graph.
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
        distribution = self._players[0][0].policy.distribution
        output, value = self._outputs(values, columns["x"])
        if self._shape.masked:
            output = distribution.masked(output, columns["mask"])
        log_prob, entropy = distribution.log_prob_entropy(output, columns["action"])
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
        for name in self._anchors:
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
