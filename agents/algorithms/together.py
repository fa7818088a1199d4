"""Several players' updates at once, each from a batch of its own.

    updates = update_together(algorithms, batches)      # the result of each algorithm.update(batch)

Nothing is shared: each player keeps its weights, its optimizer's moments, its generator and its settings. So players
may join, be reset or leave between two calls. Each ends as its own `update` would leave it, except for rounding.

This saves what a minibatch costs besides arithmetic: Python, calls, copies in the order of a pass. It pays for one
player too, so learners make all updates this way. The C library computes perceptrons on the CPU, one player per call,
the calls in threads; those on a GPU are computed by products of all players' weights at once (ppo/stacked.py). Other
players are updated one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from agents.algorithms.batch import Batch
from agents.algorithms.contract import Algorithm, Update
from agents.algorithms.ppo.algorithm import PPO, Begun, mean_terms
from agents.algorithms.ppo.stacked import Stack
from agents.algorithms.ppo.stacked_shape import Shape, shape_of
from agents.algorithms.ppo.whole import WholePPO
from agents.native.perceptron import parts_of
from agents.native.whole_update import run_all
from agents.trajectories import Trajectory
from warren.errors import NotFinite

MADE = PPO.update  # a method that replaces it is called instead
STACKED = ("cuda",)  # types of devices on which batched products pay


def update_together(algorithms: Sequence[Algorithm], batches: Sequence[Batch]) -> list[Update]:
    """Update each algorithm's policy from its batch; return what their `update` would have returned.

    Raises the NotFinite of the first player whose update raises it, after the others are updated.
    """
    updates: dict[int, Update] = {}
    given: dict[int, tuple[PPO, Sequence[Trajectory]]] = {}
    for place, (algorithm, batch) in enumerate(zip(algorithms, batches, strict=True)):
        if type(algorithm) is PPO and PPO.update is MADE:
            given[place] = algorithm, algorithm.scaled(batch)
        else:
            updates[place] = algorithm.update(batch)
    stacks = _stacks(given)
    for stack, _ in stacks:
        stack.prepare()
        stack.run()
    stacked = {place for _, places in stacks for place in places}
    begun = {place: (one, one.begin(batch)) for place, (one, batch) in given.items() if place not in stacked}
    found = _ended(begun)
    for stack, places in stacks:
        found |= zip(places, stack.end(), strict=True)
    for place, update in sorted(found.items()):
        if isinstance(update, NotFinite):
            raise update
        updates[place] = update
    return [updates[place] for place in range(len(algorithms))]


def _ended(begun: Mapping[int, tuple[PPO, Begun]]) -> dict[int, Update | NotFinite]:
    """Make the updates that have begun: by one call of the library each, or one after the other."""
    whole = {place: found for place, one in begun.items() if (found := _as_one_call(*one, len(begun)))}
    run_all([one.update for one in whole.values()])
    updates: dict[int, Update | NotFinite] = {}
    for place, (algorithm, one) in begun.items():
        try:
            metrics = whole[place].end() if place in whole else _followed(algorithm, one)
            updates[place] = algorithm.end(one, metrics)
        except NotFinite as error:
            updates[place] = error
    return updates


def _as_one_call(algorithm: PPO, begun: Begun, players: int) -> WholePPO | None:
    """Return a player's update as one call; None where threads gain more by sharing its minibatches' rows."""
    largest = max(cut.stop - cut.start for cut in begun.cuts)
    return WholePPO.of(algorithm, begun) if players >= torch.get_num_threads() or parts_of(largest) == 1 else None


def _stacks(given: Mapping[int, tuple[PPO, Sequence[Trajectory]]]) -> list[tuple[Stack, list[int]]]:
    """Return stacks of the players that can be stacked, and the keys in `given` of the players of each."""
    alike: dict[Shape, list[int]] = {}
    for place, one in given.items():
        if one[0].policy.device.type in STACKED and (shape := shape_of(*one)) is not None:
            alike.setdefault(shape, []).append(place)
    return [(Stack(shape, [given[place] for place in places]), places) for shape, places in alike.items()]


def _followed(algorithm: PPO, begun: Begun) -> dict[str, float]:
    history: list[dict[str, torch.Tensor]] = []
    algorithm.follow(begun, history)
    return mean_terms(history)
