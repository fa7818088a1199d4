"""Joint steps: drawn sequences of a team's agents, seen as the steps of whole games."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.algorithms.transitions import coefficients_of
from agents.policies import Policy
from agents.trajectories import Trajectory


@dataclass(frozen=True)
class JointSteps:
    """L steps of B games of P agents, which lie in adjacent slots; the step after each is known too."""

    alive: np.ndarray  # bool [L + 1, B, P]: the agent decides
    reward: np.ndarray  # float32 [L, B]: the mean over the agents that decide
    over: np.ndarray  # bool [L, B]: the game terminated
    cut: np.ndarray  # bool [L, B]: the game was cut off
    decided: np.ndarray  # bool [L, B]: an agent decided


def joint_steps(policy: Policy, drawn: Trajectory, agents: int, first: int, offset: float = 0.0) -> JointSteps:
    """Return the joint steps of `drawn` [T, B * P] from step `first` on, all but the last.

    `offset` is added to each reward. Raises ValueError where slots of a group do not lie together.
    """
    group = drawn.group
    if group is None or len(group) % agents or (group.reshape(-1, agents) != group.reshape(-1, agents)[:, :1]).any():
        raise ValueError(f"the slots of each game's {agents} agents have to lie together; draw them by Needs.groups")
    games = (-1, len(group) // agents, agents)
    alive = np.ones_like(drawn.terminated) if drawn.valid is None else drawn.valid
    alive, terminated, truncated = (part[first:].reshape(games) for part in (alive, drawn.terminated, drawn.truncated))
    given = drawn.reward @ coefficients_of(policy) if drawn.reward.ndim > 2 else drawn.reward
    now, ended = alive[:-1], (terminated | truncated | ~alive)[:-1].all(-1)
    deciding = now.sum(-1)
    reward = (given[first:].reshape(games)[:-1] * now).sum(-1) / np.maximum(deciding, 1) + offset
    cut = ended & (truncated & ~terminated & alive)[:-1].any(-1)
    return JointSteps(alive, reward.astype(np.float32), ended & ~cut, cut, deciding > 0)


def returns_to_ends(joint: JointSteps, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (discounted returns float32 [L, B] from each step to its game's end, bool [L, B]: whether they are known).

    A game that was cut off ends there. Returns are not known where a game goes on beyond the sequence.
    """
    ended = joint.over | joint.cut
    returns, known = np.zeros_like(joint.reward), np.zeros_like(ended)
    after, until = np.zeros_like(joint.reward[0]), np.zeros_like(ended[0])
    for step in reversed(range(len(ended))):
        after = joint.reward[step] + gamma * np.where(ended[step], 0.0, after)
        until = ended[step] | until
        returns[step], known[step] = after, until
    return returns, known & joint.decided
