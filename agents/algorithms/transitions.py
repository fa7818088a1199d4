"""Transitions: drawn trajectories as n-step transitions, which Q-learning learns from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.policies import Policy
from agents.spaces import Leaves
from agents.trajectories import Trajectory, concatenate
from warren.trees import Tree, map_tree, put, take

SEEN = "observation", "action_mask"  # fields of the moment that a transition leads to


@dataclass(frozen=True)
class Transitions:
    """Steps of N slots, in tensors on the policy's device: an action, and its results until the next bootstrap."""

    observation: Leaves  # [N, ...]
    action: Any  # [N, ...]
    reward: Tensor  # float32 [N]: of up to n steps, discounted
    discount: Tensor  # float32 [N]: of the value of `following`; 0 after a termination
    following: Leaves  # [N, ...]: the observation after those steps, or the one that the episode was cut off at
    legal: Tensor | None  # bool [N, A]: actions at `following`; None: all
    legal_now: Tensor | None  # bool [N, A]: actions at `observation`; None: all
    weights: Tensor  # float32 [N]: of each in the loss
    decided: np.ndarray  # bool [slots of the batch]: an agent decided there; only these, N, have transitions

    def priorities(self, error: np.ndarray) -> np.ndarray:
        """Return `error` [N] as float32 [slots of the batch], with 0 where no agent decided."""
        found = np.zeros(len(self.decided), np.float32)
        found[self.decided] = error
        return found

    def tensors(self) -> dict[str, Tree]:
        """Return the tensors by field, without fields that are None."""
        every = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "decided"}
        return {name: value for name, value in every.items() if value is not None}

    def of(self, tensors: Mapping[str, Tree]) -> Transitions:
        """Return the same transitions with other `tensors`, such as copies on another device."""
        return replace(self, **tensors)

    @classmethod
    def made_of(cls, tensors: Mapping[str, Tree]) -> Transitions:
        """Return the transitions that have these `tensors`, for a step: it is not known which slots they belong to."""
        return cls(**{"legal": None, "legal_now": None, **tensors}, decided=np.ones(0, np.bool_))


def transitions(
    policy: Policy, batch: Sequence[Trajectory], gamma: float, device: torch.device | None = None
) -> Transitions:
    """Return one transition for each slot of `batch` in whose first step an agent decided; `device` None: the policy's.

    It spans all steps, or those until the episode ends. Raises ValueError for episodes that were cut off where the
    observations at the cut are missing.
    """
    drawn, weights = concatenate(list(batch)), getattr(batch, "weights", None)
    decided = np.ones(drawn.num_slots, np.bool_) if drawn.valid is None else drawn.valid[0]
    if not decided.all():
        drawn, weights = drawn.slots(np.flatnonzero(decided)), None if weights is None else weights[decided]
    ended = drawn.terminated | drawn.truncated
    goes_on = np.cumprod(np.concatenate([np.ones_like(ended[:1]), ~ended[:-1]]), axis=0).astype(np.bool_)
    reward = drawn.reward @ coefficients_of(policy) if drawn.reward.ndim > 2 else drawn.reward
    discounts = gamma ** np.arange(len(ended), dtype=np.float32)[:, None]
    after = {name: map_tree(np.array, drawn.last[name]) for name in SEEN if name in drawn.last}  # replaced below
    cut = drawn.truncated & ~drawn.terminated & goes_on
    if cut.any():
        slots, at_cut = kept_at_cuts(drawn, cut)
        put(after, slots, at_cut)
    over = (drawn.terminated & goes_on).any(0)
    device = policy.device if device is None else device

    def tensor(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=device)

    return Transitions(
        observation=policy.leaves(map_tree(lambda leaf: leaf[0], drawn.observation), device),
        action=map_tree(lambda leaf: tensor(leaf[0]), drawn.action),
        reward=tensor((reward * discounts * goes_on).sum(0).astype(np.float32)),
        discount=tensor((gamma ** goes_on.sum(0) * ~over).astype(np.float32)),
        following=policy.leaves(after["observation"], device),
        legal=tensor(after["action_mask"]) if "action_mask" in after else None,
        legal_now=None if drawn.action_mask is None else map_tree(lambda leaf: tensor(leaf[0]), drawn.action_mask),
        weights=torch.ones(drawn.num_slots, device=device) if weights is None else tensor(weights),
        decided=decided,
    )


def coefficients_of(policy: Policy) -> np.ndarray:
    """Return float32 [C], the weights of the channels of a reward."""
    return np.fromiter(policy.channels.values(), np.float32)


def kept_at_cuts(drawn: Trajectory, cut: np.ndarray) -> tuple[np.ndarray, Tree]:
    """Return (slots int64 [K], what is kept [K, ...] by name) of the episodes cut off where `cut` bool [T, N] is True.

    Raises ValueError where the trajectory lacks one of them.
    """
    if drawn.cuts is None:
        raise ValueError("episodes were cut off, and the trajectory has no cut_observation; name it in Needs.fields")
    at, kept = drawn.cuts
    rows = np.flatnonzero(cut[at[:, 0], at[:, 1]])
    if len(rows) != cut.sum():
        raise ValueError(f"{int(cut.sum())} episodes were cut off, and there are observations of {len(rows)}")
    return at[rows, 1], take(kept, rows)
