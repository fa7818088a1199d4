"""Categorical policy over a Discrete action space; the network's output is the logits."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from agents.networks import Network
from agents.policies.policy import Policy

# The logit of an illegal action: its probability is exactly 0, and 0 * log 0 in the entropy stays 0 instead of nan.
ILLEGAL = -1e8


class CategoricalPolicy(Policy):
    """pi(a|s) = softmax(logits(s))_a. Closed forms, not torch.distributions, which costs six times as much a call."""

    def __init__(
        self,
        network: Network,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.spaces.Discrete,
        seed: int,
    ) -> None:
        super().__init__(network, observation_space, action_space, seed)
        self._start = int(action_space.start)

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return action + self._start if self._start else action

    def probabilities(self, observation: np.ndarray, action_mask: np.ndarray | None = None) -> np.ndarray:
        """observation [N, ...] -> float32 [N, A]; exactly 0 where `action_mask` bool [N, A] is False."""
        with torch.inference_mode():
            output = self.network.output(self._tensor(observation))
            if action_mask is not None:
                output = self._masked(output, torch.as_tensor(action_mask, device=output.device))
            return torch.softmax(output, -1).cpu().numpy()

    def _masked(self, output: Tensor, action_mask: Tensor) -> Tensor:
        return output.masked_fill(~action_mask, ILLEGAL)

    def _sample(self, output: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        # Gumbel-max: argmax(log p - log E) with E ~ Exp(1) is distributed as p.
        log_probs = torch.log_softmax(output, -1)
        noise = torch.empty(log_probs.shape).exponential_(generator=generator).log_()
        action = (log_probs - noise.to(log_probs.device)).argmax(-1, keepdim=True)
        return action.squeeze(-1), log_probs.gather(-1, action).squeeze(-1)

    def _mode(self, output: Tensor) -> tuple[Tensor, Tensor]:
        log_prob, action = torch.log_softmax(output, -1).max(-1)
        return action, log_prob

    def _log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(output, -1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy
