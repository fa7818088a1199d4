"""The settings and shapes that players have in common who are updated as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from agents.algorithms.adam import Adam
from agents.algorithms.peers import cuts
from agents.algorithms.ppo.algorithm import PPO
from agents.algorithms.ppo.stacked_perceptrons import ACTIVATIONS, Layers, Nets
from agents.networks import Normalized
from agents.policies.categorical import Categorical
from agents.trajectories import Trajectory
from warren.trees import leaves

Leaf = tuple[str, tuple[int, ...], str]  # path, shape of one observation, dtype


class Shape(NamedTuple):
    """The settings and shapes that stacked players have in common."""

    device: torch.device
    nets: Nets
    size: int  # numbers of a player's parameters
    normalizes: bool  # each player normalises observations by moments of its own
    observation: tuple[Leaf, ...]
    masked: bool
    anchors: tuple[str, ...]  # names of the anchors that policies are kept near to, of PREFIXES
    blocks: tuple[tuple[int, int], ...]  # T and N of each trajectory
    cuts: tuple[int, ...]  # bounds of minibatches, from 0 to the number of valid steps
    epochs: int
    standardizes: bool
    clips_value: bool
    decays: bool
    decoupled: bool

    @property
    def steps(self) -> int:
        """Return the steps of a player's trajectories, those that are not valid included."""
        return sum(length * slots for length, slots in self.blocks)

    @property
    def valid(self) -> int:
        """Return the number of a player's valid steps."""
        return self.cuts[-1]

    def runs(self) -> Iterator[tuple[slice, slice, tuple[int, int, int]]]:
        """Yield (their steps, their slots, (K, T, N)) of each K trajectories that follow each other and are alike."""
        step = slot = 0
        for (length, slots), blocks in groupby(self.blocks):
            number = len(list(blocks))
            steps_end, slots_end = step + number * length * slots, slot + number * slots
            yield slice(step, steps_end), slice(slot, slots_end), (number, length, slots)
            step, slot = steps_end, slots_end

    @property
    def minibatches(self) -> int:
        """Return the number of minibatches of an update."""
        return self.epochs * (len(self.cuts) - 1)


def shape_of(algorithm: PPO, trajectories: Sequence[Trajectory]) -> Shape | None:
    """Return the Shape that a player has to share with those it is stacked with; None if it must be updated alone.

    `trajectories`: as `scaled` returned them.
    """
    policy, config, optimizer = algorithm.policy, algorithm.config, algorithm.descent.optimizer
    if type(optimizer) is not Adam or algorithm.descent.factors is not None or algorithm.peers.size > 1:
        return None
    if policy.has_memory or algorithm.needs.burn_in or not policy.computes_plainly or config.teacher_heads is not None:
        return None
    if type(policy.distribution) is not Categorical or policy.channels or policy.value_scale is not None:
        return None
    nets, steps = _nets(algorithm), sum(trajectory.num_steps for trajectory in trajectories)
    if nets is None or not steps:
        return None
    first = trajectories[0]
    stops = (cut.stop for cut in cuts(steps, config.minibatch_size, algorithm.peers))
    return Shape(
        policy.device, nets, optimizer.values.numel(), isinstance(policy.network, Normalized),
        tuple((path, leaf.shape[2:], leaf.dtype.name) for path, leaf in leaves(first.observation)),
        first.action_mask is not None, tuple(algorithm.anchors()), tuple(t.terminated.shape for t in trajectories),
        (0, *stops), config.epochs, config.normalize_advantage, config.clip_range_value is not None,
        config.weight_decay != 0, optimizer.decoupled,
    )  # fmt: skip


def _nets(algorithm: PPO) -> Nets | None:
    found = algorithm.policy.network.perceptrons(True)
    if found is None or found.value is None or found.policy.activation not in ACTIVATIONS:
        return None
    start_of = algorithm.descent.parameters.start_of

    def places(layers: Sequence[tuple[Tensor, Tensor]]) -> Layers:
        return tuple(((start_of(weight), weight.shape), (start_of(bias), bias.shape)) for weight, bias in layers)

    of_value = () if found.value is found.policy else places(found.of_value)
    return Nets(found.policy.activation, places(found.of_policy), of_value)
