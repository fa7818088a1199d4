"""Players with perceptrons alike, updated as one: weights [P, ...], batched products, one Adam over [P, n]; for a GPU.

A stack takes over the players' weights and moments when an update begins, and hands them back when it ends. Its steps
are launched as graphs, so stacking pays for one player alone too. Settings that differ between players are vectors [P].
The players' status stays on the device meanwhile: after a loss that is not finite or a KL beyond target_kl, the steps
of that player change nothing. So the processor waits for the device once per update.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from agents.algorithms.adam import Adam
from agents.algorithms.ppo.algorithm import PPO, Begun, mean_terms
from agents.algorithms.ppo.stacked_steps import ACTIVATIONS, FAILED, LEARNED, Layer, Shape, StackedSteps
from agents.networks.network import Perceptrons
from agents.policies.categorical import Categorical


def shape_of(algorithm: PPO, begun: Begun) -> Shape | None:
    """Return the Shape that a player has to share with those it is stacked with; None if it must be updated alone."""
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
    start_of = algorithm.descent.parameters.start_of

    def places(layers: Sequence[tuple[Tensor, Tensor]]) -> tuple[Layer, ...]:
        return tuple(((start_of(weight), weight.shape), (start_of(bias), bias.shape)) for weight, bias in layers)

    return places(found.of_policy), () if found.value is found.policy else places(found.of_value)


class Stack:
    """The update of P players of one `Shape`."""

    def __init__(self, shape: Shape, players: Sequence[tuple[PPO, Begun]]) -> None:
        self._shape, self._players = shape, players
        every = (algorithm.descent.optimizer for algorithm, _ in players)
        optimizers = [optimizer for optimizer in every if isinstance(optimizer, Adam)]  # all, by `shape_of`
        for optimizer in optimizers:
            optimizer.begin()
        self.steps = StackedSteps.of(shape, len(players), optimizers[0].values.numel())
        self._orders, self._states = zip(*(algorithm.orders(begun) for algorithm, begun in players), strict=True)
        self._begin(optimizers)

    def _begin(self, optimizers: Sequence[Adam]) -> None:
        """Copy the players' weights, moments and settings into the steps."""
        steps = self.steps
        torch.stack([optimizer.values.detach() for optimizer in optimizers], out=steps.values)
        for name, moment in zip(Adam.moments, (steps.mean, steps.square), strict=True):
            torch.stack([optimizer.state[name] for optimizer in optimizers], out=moment)
        steps.step_count.copy_(torch.stack([optimizer.state["step"] for optimizer in optimizers]))
        steps.status.fill_(LEARNED)
        numbers = [_numbers(self._shape, *player) for player in self._players]
        every = torch.tensor([[of_one[name] for of_one in numbers] for name in steps.numbers], dtype=torch.float64)
        for vector, now in zip(steps.numbers.values(), every.to(self._shape.device), strict=True):
            vector.copy_(now[:, None])

    def run(self) -> None:
        """Make all steps, and hand weights and moments back."""
        columns, cuts = self._columns(), list(pairwise(self._shape.cuts))
        places = torch.arange(len(self._players), device=self._shape.device)[:, None]
        told, became = [], []
        for epoch in range(self._shape.epochs):
            order = torch.stack([orders[epoch] for orders in self._orders]).to(self._shape.device)
            shuffled = {name: column[places, order] for name, column in columns.items()}
            for start, stop in cuts:
                told.append(self.steps({name: column[:, start:stop] for name, column in shuffled.items()}))
                became.append(self.steps.status.clone())
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
            algorithm.follow(begun, made, self._orders[place])  # torch's error of one player alone says more
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
                optimizer.values.copy_(self.steps.values[place])
                for name, moment in zip(Adam.moments, (self.steps.mean, self.steps.square), strict=True):
                    optimizer.state[name].copy_(moment[place])
                optimizer.state["step"].copy_(self.steps.step_count[place])


def _numbers(shape: Shape, algorithm: PPO, begun: Begun) -> dict[str, float]:
    """Return the numbers that are a player's own, by their names in StackedSteps."""
    config = algorithm.config
    of_anchors = {name: algorithm.anchor_coefficient(name) for name in shape.anchors}
    return {
        "clip": config.clip_range,
        "clip_value": config.clip_range_value or 0.0,
        "value": config.value_coefficient,
        "entropy": algorithm.entropy_coefficient,
        "most_kl": float("inf") if config.target_kl is None else 1.5 * config.target_kl,
        "longest": config.max_grad_norm,
        "rate": begun.learning_rate,
        "beta1": config.adam_beta1,
        "beta2": config.adam_beta2,
        "epsilon": config.adam_epsilon,
        "decay": config.weight_decay,
        **of_anchors,
    }
