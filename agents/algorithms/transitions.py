"""Transitions: drawn trajectories as n-step transitions, what Q-learning learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.policies import Policy
from agents.spaces import Leaves
from agents.trajectories import Trajectory, concatenate
from warren.trees import Tree, map_tree, take


@dataclass(frozen=True)
class Transitions:
    """Steps of N slots, in tensors where the policy is: an action, and what came of it until the next bootstrap."""

    observation: Leaves  # [N, ...]
    action: Any  # [N, ...]
    reward: Tensor  # float32 [N]: of up to n steps, discounted
    discount: Tensor  # float32 [N]: of the value of `following`; 0 after a termination
    following: Leaves  # [N, ...]: the observation after those steps, or the one that the episode was cut off at
    legal: Tensor | None  # bool [N, A]: actions at `following`; None: all
    legal_now: Tensor | None  # bool [N, A]: actions at `observation`; None: all
    weights: Tensor  # float32 [N]: of each in the loss


def transitions(policy: Policy, batch: Sequence[Trajectory], gamma: float, steps: int) -> Transitions:
    """Return one transition of each slot of `batch`, of its first `steps` steps, or until an episode ends.

    Where sequences are a step longer, that step tells what is legal after the others. Raises ValueError for episodes
    that were cut off, where the observations that they were cut off at are not there.
    """
    drawn = concatenate(list(batch))
    ended = (drawn.terminated | drawn.truncated)[:steps]
    longer = len(drawn.terminated) > steps
    goes_on = np.cumprod(np.concatenate([np.ones_like(ended[:1]), ~ended[:-1]]), axis=0).astype(np.bool_)
    reward = (drawn.reward @ coefficients_of(policy) if drawn.reward.ndim > 2 else drawn.reward)[:steps]
    discounts = gamma ** np.arange(len(ended), dtype=np.float32)[:, None]
    after = take(drawn.observation, steps) if longer else drawn.last["observation"]
    following = map_tree(np.array, after)  # a copy, in part replaced below
    cut = np.zeros_like(drawn.truncated)
    cut[:steps] = (drawn.truncated & ~drawn.terminated)[:steps] & goes_on
    legal = np.array(drawn.action_mask[steps]) if longer and drawn.action_mask is not None else None
    if cut.any():
        slots, at_cut = cut_observations(drawn, cut)

        def put(last: np.ndarray, leaf: np.ndarray) -> None:
            last[slots] = leaf

        map_tree(put, following, at_cut)
        if legal is not None:
            legal[slots] = True  # what was legal there is not known
    over = (drawn.terminated[:steps] & goes_on).any(0)
    weights = getattr(batch, "weights", None)
    if drawn.valid is not None:  # what nobody decided counts for nothing
        weights = drawn.valid[0].astype(np.float32) * (1 if weights is None else weights)
    device = policy.device

    def tensor(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=device)

    return Transitions(
        observation=policy.leaves(map_tree(lambda leaf: leaf[0], drawn.observation)),
        action=map_tree(lambda leaf: tensor(leaf[0]), drawn.action),
        reward=tensor((reward * discounts * goes_on).sum(0).astype(np.float32)),
        discount=tensor((gamma ** goes_on.sum(0) * ~over).astype(np.float32)),
        following=policy.leaves(following),
        legal=None if legal is None else tensor(legal),
        legal_now=None if drawn.action_mask is None else map_tree(lambda leaf: tensor(leaf[0]), drawn.action_mask),
        weights=torch.ones(drawn.num_slots, device=device) if weights is None else tensor(weights),
    )


def coefficients_of(policy: Policy) -> np.ndarray:
    """Return float32 [C], the weights of the channels of a reward."""
    return np.fromiter(policy.channels.values(), np.float32)


def cut_observations(drawn: Trajectory, cut: np.ndarray) -> tuple[np.ndarray, Tree]:
    """Return (slots int64 [K], observations [K, ...]) of the episodes cut off where `cut` bool [T, N] is True.

    Raises ValueError where one is not there.
    """
    if drawn.cut_at is None:
        raise ValueError("episodes were cut off, and the trajectory has no cut_observation; name it in Needs.fields")
    rows = np.flatnonzero(cut[drawn.cut_at[:, 0], drawn.cut_at[:, 1]])
    if len(rows) != cut.sum():
        raise ValueError(f"{int(cut.sum())} episodes were cut off, and there are observations of {len(rows)}")
    return drawn.cut_at[rows, 1], take(drawn.cut_observation, rows)
