"""The batches of stacked players, [P, steps, ...], and what an update computes of them before its first minibatch.

Each field of all players' trajectories goes to the device in one piece. Returns, and the distributions of anchors that
are laid out as the players themselves, are computed for all players at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from agents.algorithms.anchors import PREFIXES, distributions
from agents.algorithms.batches import Minibatch
from agents.algorithms.ppo.algorithm import PPO
from agents.algorithms.ppo.stacked_shape import Shape
from agents.algorithms.ppo.stacked_steps import LOGITS, StackedSteps
from agents.algorithms.sending import Sending
from agents.operators.advantages import gae
from agents.operators.unrolls import Unroll
from agents.trajectories import Trajectory
from warren.trees import Tree, leaves, map_tree

OF_RETURNS = "reward", "value", "terminated", "truncated", "final_value"
AT_ONCE = 1 << 18  # rows of a forward pass of anchors: more take more memory, and no less time


class StackedBatch:
    """The batches of P players of one `Shape`."""

    def __init__(self, shape: Shape, players: Sequence[tuple[PPO, Sequence[Trajectory]]]) -> None:
        """Begin to send the trajectories to the device. Raises KeyError for a field that they lack."""
        self._shape, self._players = shape, players
        every = [trajectory for _, trajectories in players for trajectory in trajectories]
        observations = [dict(leaves(t.observation)) for t in every]
        seen = {f"observation {path}": [one[path] for one in observations] for path, *_ in shape.observation}
        fields = {
            "action": [t.action for t in every],
            "log_prob": [t.extras["log_prob"] for t in every],
            "value": [t.extras["value"] for t in every],
            "reward": [t.reward for t in every],
            "terminated": [t.terminated for t in every],
            "truncated": [t.truncated for t in every],
            "final_value": [t.cut["value"] for t in every],
            "bootstrap": [t.last["value"][None] for t in every],
        }
        if shape.masked:
            fields["mask"] = [t.action_mask for t in every]
        if shape.valid < shape.steps:
            fields["valid"] = [_valid(trajectories)[None] for _, trajectories in players]
        self._sending = Sending(seen | fields, shape.device)

    def fill(self, steps: StackedSteps) -> None:
        """Write the columns of steps, whose weights and numbers are in their places."""
        found, count = self._sending.sent(), len(self._players)
        self._sent = {name: one.view(count, len(one) // count, *one.shape[1:]) for name, one in found.items()}
        leaf = iter([self._sent[f"observation {path}"] for path, *_ in self._shape.observation])
        self._observation = map_tree(lambda _: next(leaf), self._players[0][1][0].observation)
        for name in ("action", "mask") if self._shape.masked else ("action",):
            steps.of_players(name).copy_(self._sent[name])
        networks = [algorithm.policy.network for algorithm, _ in self._players]
        x = [network.flattened(self.observation(place)) for place, network in enumerate(networks)]
        torch.stack(x, out=steps.of_players("x"))
        for name in ("log_prob", "value"):
            steps.of_players(name).copy_(self._sent[name])
        self._write_returns(steps)
        for name in self._shape.anchors:
            self._write_anchors(name, steps)

    def observation(self, place: int) -> Tree:
        """Return a player's observations at all steps, as its network takes them."""
        return self._players[place][0].policy.leaves(map_tree(lambda leaf: leaf[place], self._observation))

    def valid(self, tree: Tree, place: int) -> Tree:
        """Return the valid steps of a player's tensors [steps, ...]."""
        rows = self._sent.get("valid")
        return tree if rows is None else map_tree(lambda leaf: leaf[rows[place]], tree)

    def rows(self, order: Tensor) -> Tensor:
        """Return the rows of columns [P * steps, ...] that the players' valid steps `order` int64 [P, n] are."""
        if (rows := self._sent.get("valid")) is not None:
            order = rows.gather(1, order)
        return order + self._shape.steps * torch.arange(len(order), device=order.device)[:, None]

    def _write_returns(self, steps: StackedSteps) -> None:
        advantage, players = steps.of_players("advantage"), steps.players
        for here, slots, (number, length, width) in self._shape.runs():
            by_player = players, number, length, width
            reward, value, terminated, truncated, final_value = (
                self._sent[name][:, here].reshape(by_player).permute(2, 0, 1, 3).reshape(length, -1)
                for name in OF_RETURNS
            )
            last = self._sent["bootstrap"][:, slots]
            unroll = Unroll(reward, value, terminated, truncated, final_value, last.reshape(-1))
            gamma, decay = (steps.numbers[name].float().expand_as(last).reshape(-1) for name in ("gamma", "gae_lambda"))
            found = gae(unroll, gamma, decay).view(length, players, number, width).permute(1, 2, 0, 3)
            advantage[:, here].copy_(found.reshape(players, -1))
        torch.add(advantage, steps.of_players("value"), out=steps.of_players("target"))  # TD(lambda) return

    def _write_anchors(self, name: str, steps: StackedSteps) -> None:
        prefix = PREFIXES[name]
        column = steps.of_players(prefix)
        if name == "teacher" or self._shape.normalizes:  # other networks, or inputs of its own
            for place, (algorithm, _) in enumerate(self._players):
                mask = self._sent["mask"][place] if self._shape.masked else None
                given = Minibatch(self.observation(place), self._sent["action"][place], mask, {}, {})
                column[place].copy_(distributions(algorithm.anchors()[name], given, prefix)[prefix])
            return
        values = steps.values
        if name == "magnet":
            magnets = [algorithm.magnet for algorithm, _ in self._players]
            values = torch.stack([one.parameters.values.detach() for one in magnets if one is not None])
        parameters, x = self._shape.nets.parameters(values), steps.of_players("x")
        size = max(1, AT_ONCE // steps.players)
        for begin in range(0, self._shape.steps, size):
            here = slice(begin, begin + size)
            logits = self._shape.nets.logits(parameters, x[:, here])
            column[:, here].copy_(LOGITS.masked(logits, self._sent["mask"][:, here]) if self._shape.masked else logits)


def _valid(trajectories: Sequence[Trajectory]) -> np.ndarray:
    """Return the places of valid steps among all, int64 [valid steps]."""
    every = [np.ones_like(t.terminated) if t.valid is None else t.valid for t in trajectories]
    return np.flatnonzero(np.concatenate([one.ravel() for one in every]))
