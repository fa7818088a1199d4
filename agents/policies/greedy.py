"""The distribution of policies that act by the values of their actions: all probability is on the best one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agents.policies.categorical import ILLEGAL, Categorical


class Greedy(Categorical):
    """The Discrete action of the greatest value, where the output is Q(s, .): the policy of DQN and its kin.

    With K `quantiles` of each action's return the output is [..., A * K], each action's side by side; Q is their mean.
    An explorer draws other actions.
    """

    has_chance = False

    def __init__(self, actions: int, start: int = 0, quantiles: int = 1) -> None:
        super().__init__(actions, start)
        self.actions, self.quantiles = actions, quantiles
        self.size = actions * quantiles

    @property
    def mask_size(self) -> int:
        return self.actions

    def scores(self, output: Tensor) -> Tensor:
        """Return Q float32 [..., A]."""
        if self.quantiles == 1:
            return output
        return output.reshape(*output.shape[:-1], self.actions, self.quantiles).mean(-1)

    def mode(self, output: Tensor) -> Tensor:
        return self.scores(output).argmax(-1)

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return self.mode(output)

    def drawn_by(self, output: Tensor, noise: Tensor) -> Tensor:
        return self.mode(output)

    def sample_in_numpy(self, output: np.ndarray, generator: torch.Generator) -> np.ndarray:
        action: np.ndarray = self.mode(torch.from_numpy(output)).numpy()
        return action

    def probabilities(self, output: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(self.mode(output), self.actions).float()

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        return torch.where(action == self.mode(output), 0.0, ILLEGAL)

    def log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_prob = self.log_prob(output, action)
        return log_prob, torch.zeros_like(log_prob)

    def masked(self, output: Tensor, action_mask: Tensor) -> Tensor:
        if self.quantiles > 1:
            action_mask = action_mask.repeat_interleave(self.quantiles, -1)
        return super().masked(output, action_mask)
