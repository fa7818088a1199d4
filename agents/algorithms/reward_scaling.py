"""Rewards divided by the deviation of their discounted sums, as ppo2's VecNormalize scales them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from agents.operators.normalization import RunningMoments, discounted_sums
from agents.trajectories import Trajectory

REWARD_CLIP = 10.0  # deviations that a scaled reward is clipped to
PREFIX = "discounted."  # prefix of its state's names


class RewardScaling:
    """The deviation of the discounted sums of all rewards so far, over all channels."""

    def __init__(self) -> None:
        self.moments = RunningMoments()

    def scaled(self, trajectories: Sequence[Trajectory], gamma: float) -> Sequence[Trajectory]:
        """Return the trajectories with scaled rewards, after adding their sums to the moments.

        Sums begin at 0 in each trajectory, so unrolls that are much shorter than 1 / (1 - gamma) give smaller sums, and
        a smaller deviation, than whole episodes do.
        """
        sums = []
        for t in trajectories:
            reward = torch.from_numpy(t.reward)
            ended = torch.from_numpy(t.terminated | t.truncated)
            if reward.dim() > ended.dim():
                ended = ended.unsqueeze(-1).expand_as(reward)
            found = discounted_sums(reward, ended, torch.zeros_like(reward[0]), gamma)[0]
            sums.append((found if t.valid is None else found[torch.from_numpy(t.valid)]).flatten())
        self.moments.update(torch.cat(sums))  # in one call, as learners that train together have to
        scale = self.moments.scale
        return [replace(t, reward=scale(torch.from_numpy(t.reward), REWARD_CLIP).numpy()) for t in trajectories]

    def state(self) -> dict[str, Tensor]:
        """Return the moments by name, for a checkpoint."""
        return {PREFIX + name: tensor for name, tensor in self.moments.state_dict().items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned, where `tensors` have it: a run may begin to scale rewards later."""
        if f"{PREFIX}count" in tensors:
            self.moments.load_state_dict({name: tensors[PREFIX + name] for name in self.moments.state_dict()})
