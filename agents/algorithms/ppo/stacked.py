"""Players with perceptrons alike, updated as one: weights [P, ...], batched products, one Adam over [P, n]; for a GPU.

A stack takes over the players' weights and moments when an update begins, and hands them back when it ends. Its steps
are launched as graphs, so stacking pays for one player alone too. Settings that differ between players are vectors [P].
The players' status stays on the device meanwhile: after a loss that is not finite or a KL beyond target_kl, the steps
of that player change nothing. So the processor waits for the device once per update, and the number of copies and
kernels does not depend on the number of players.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from agents.algorithms import magnet
from agents.algorithms.adam import Adam
from agents.algorithms.anchors import PREFIXES
from agents.algorithms.batches import Batch
from agents.algorithms.contract import Update
from agents.algorithms.ppo.algorithm import PPO, TAKEN, Begun, mean_terms
from agents.algorithms.ppo.stacked_batch import StackedBatch
from agents.algorithms.ppo.stacked_shape import Shape
from agents.algorithms.ppo.stacked_steps import FAILED, LEARNED, NUMBERS, StackedSteps
from agents.algorithms.sending import host_empty, started
from agents.operators.losses import explained_variance
from agents.trajectories import Trajectory
from warren.errors import NotFinite


class Stack:
    """The update of P players of one `Shape`, from their trajectories as `scaled` returned them."""

    def __init__(self, shape: Shape, players: Sequence[tuple[PPO, Sequence[Trajectory]]]) -> None:
        self._shape, self._players = shape, players
        self._algorithms = [algorithm for algorithm, _ in players]
        self.steps = StackedSteps.of(shape, len(players))

    @torch.no_grad()
    def prepare(self) -> None:
        """Queue all that comes before the first minibatch on the device."""
        self._draw_orders()
        self._batch = StackedBatch(self._shape, self._players)
        self._take_over()
        self._batch.fill(self.steps)
        for drawing in self._drawing:
            if drawing is not None:
                drawing.result()
        order = self._orders.to(self._shape.device, non_blocking=True)
        self.steps.order.copy_(self._batch.rows(order.flatten(1)))
        self.steps.begin()

    def run(self) -> None:
        """Queue all minibatches; hand weights and moments back."""
        for _ in range(self._shape.epochs):
            for start, stop in pairwise(self._shape.cuts):
                self.steps(stop - start)
        self._hand_back()

    def end(self) -> list[Update | NotFinite]:
        """Wait for the device; return each player's update, or the error that its own `update` would have raised."""
        value, target = (self._valid(self.steps.of_players(name)) for name in ("value", "target"))
        explained, size = explained_variance(value, target, 1), self.steps.told.numel()
        told = torch.cat([self.steps.told.flatten(), explained]).cpu().numpy()
        terms = told[:size].reshape(self.steps.told.shape)
        found = [self._ended(place, terms[..., place], told[size + place]) for place in range(len(self._players))]
        learned = [one for one, update in zip(self._algorithms, found, strict=True) if isinstance(update, Update)]
        magnet.follow(pair for algorithm in learned for pair in algorithm.followed())
        return found

    def _ended(self, place: int, told: np.ndarray, explained: float) -> Update | NotFinite:
        """End a player's update, but for its magnet; `told` float32 [minibatches, terms and status]."""
        algorithm, terms, became = self._algorithms[place], told[:, :-1], told[:, -1]
        learned = int((became == LEARNED).sum())
        if (became == FAILED).any():
            return self._failed(place, terms[:learned])
        if learned < len(became):
            algorithm.generator.set_state(self._states[place][learned // (len(self._shape.cuts) - 1)])
            if not learned:  # the first was too far already
                terms[0, -1] = 0.0
        if self._shape.normalizes:
            algorithm.policy.take_in(self._batch.valid(self._batch.observation(place), place))
        algorithm.count(self._shape.valid)
        means = terms[: max(1, learned)].mean(0, dtype=np.float64).tolist()
        metrics = dict(zip(self.steps.term_names, means, strict=True))
        return algorithm.result(metrics | {"explained_variance": float(explained)}, self._rates[place])

    def _failed(self, place: int, terms: np.ndarray) -> Update | NotFinite:
        """Go on with a player alone from the minibatch that failed: torch's error says more."""
        algorithm, trajectories = self._players[place]
        names = *TAKEN, *(PREFIXES[one] for one in self._shape.anchors)
        columns = {name: self._batch.valid(self.steps.of_players(name)[place], place) for name in names}
        cuts = [slice(*bounds) for bounds in pairwise(self._shape.cuts)]
        begun = Begun(Batch(algorithm.policy, trajectories), columns, self._rates[place], cuts, None)
        made = [dict(zip(self.steps.term_names, torch.from_numpy(row), strict=True)) for row in terms]
        try:
            algorithm.follow(begun, made, list(self._orders[place]))
            return algorithm.end(begun, mean_terms(made))
        except NotFinite as error:
            return error

    def _draw_orders(self) -> None:
        """Begin to draw the order of the steps in each pass, from each player's generator."""
        shape = self._shape
        self._orders = host_empty((len(self._players), shape.epochs, shape.valid), torch.int64, shape.device)
        self._states: list[list[Tensor]] = [[] for _ in self._players]

        def draw(place: int) -> None:
            _, self._states[place] = self._algorithms[place].orders(shape.valid, self._orders[place])

        size = self._orders.nbytes if len(self._players) > 1 else 0
        self._drawing = [started(partial(draw, place), size) for place in range(len(self._players))]

    def _take_over(self) -> None:
        """Copy the players' weights, moments and settings into the steps."""
        steps, optimizers = self.steps, self._optimizers()
        for optimizer in optimizers:
            optimizer.begin()
        torch.stack([optimizer.values.detach() for optimizer in optimizers], out=steps.values)
        for name, moment in zip(Adam.moments, (steps.mean, steps.square), strict=True):
            torch.stack([optimizer.state[name] for optimizer in optimizers], out=moment)
        steps.step_count.copy_(torch.stack([optimizer.state["step"] for optimizer in optimizers]))
        self._rates = [algorithm.set_learning_rate() for algorithm in self._algorithms]
        numbers = host_empty(steps.exact.shape[:2], torch.float64, self._shape.device)
        of_each = zip(self._algorithms, self._rates, strict=True)
        numbers.numpy()[:] = np.transpose([_numbers(self._shape, *one) for one in of_each])
        steps.exact.copy_(numbers[..., None], non_blocking=True)

    def _optimizers(self) -> list[Adam]:
        every = (algorithm.descent.optimizer for algorithm in self._algorithms)
        return [optimizer for optimizer in every if isinstance(optimizer, Adam)]  # all, by `shape_of`

    @torch.no_grad()
    def _hand_back(self) -> None:
        steps, optimizers = self.steps, self._optimizers()
        ours = [steps.values, steps.mean, steps.square, steps.step_count.float()]
        theirs = [[optimizer.values for optimizer in optimizers]]
        theirs += [[optimizer.state[name] for optimizer in optimizers] for name in (*Adam.moments, "step")]
        for now, places in zip(ours, theirs, strict=True):
            torch._foreach_copy_(places, list(now.unbind()))

    def _valid(self, column: Tensor) -> Tensor:
        """Return the valid steps of a column [P, steps], one epoch's in its order."""
        if self._shape.valid == self._shape.steps:
            return column
        return column.flatten()[self.steps.order[:, : self._shape.valid]]


def _numbers(shape: Shape, algorithm: PPO, learning_rate: float) -> list[float]:
    """Return the numbers that are a player's own, in the order of NUMBERS and the anchors."""
    config = algorithm.config
    found = {
        "clip": config.clip_range,
        "clip_value": config.clip_range_value or 0.0,
        "value": config.value_coefficient,
        "entropy": algorithm.entropy_coefficient,
        "most_kl": float("inf") if config.target_kl is None else 1.5 * config.target_kl,
        "longest": config.max_grad_norm,
        "rate": learning_rate,
        "beta1": config.adam_beta1,
        "beta2": config.adam_beta2,
        "epsilon": config.adam_epsilon,
        "decay": config.weight_decay,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
    }
    return [found[name] for name in NUMBERS] + [algorithm.anchor_coefficient(name) for name in shape.anchors]
