"""Policy: a network, and the distribution over actions that its output stands for."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from agents.networks import Network
from warren.errors import ConfigurationError


class Policy(nn.Module):
    """Acts with numpy arrays (`act`, `value`), learns with tensors (`evaluate`).

    Subclasses give the distribution: `_sample`, `_mode` and `_log_prob_entropy` over the network's output [N, outputs].
    """

    def __init__(
        self, network: Network, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], seed: int
    ) -> None:
        super().__init__()
        self.network = network
        self.observation_space = observation_space
        self.action_space = action_space
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def act(
        self,
        observation: np.ndarray,
        generator: torch.Generator | None = None,
        greedy: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """observation [N, ...] -> action (int64 [N] or float32 [N, A]), log_prob float32 [N], value float32 [N].

        Draws from `generator` (on the CPU, wherever the weights are; the policy's own if None); `greedy` takes the
        likeliest action instead. `action_mask` bool [N, A] says which actions are legal; None: all are. Raises
        ConfigurationError for a mask over continuous actions.
        """
        with torch.inference_mode():
            output, value = self.network(self._tensor(observation))
            if action_mask is not None:
                output = self._masked(output, torch.as_tensor(action_mask, device=output.device))
            if greedy:
                action, log_prob = self._mode(output)
            else:
                action, log_prob = self._sample(output, generator or self.generator)
            return action.cpu().numpy(), log_prob.cpu().numpy(), value.cpu().numpy()

    def choose(
        self, observation: np.ndarray, generator: torch.Generator, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        """The action of `act` alone, from the same draws: for players that do not learn from it."""
        with torch.inference_mode():
            output = self.network.output(self._tensor(observation))
            if action_mask is not None:
                output = self._masked(output, torch.as_tensor(action_mask, device=output.device))
            return self._sample(output, generator)[0].cpu().numpy()

    def value(self, observation: np.ndarray) -> np.ndarray:
        """observation [N, ...] -> V float32 [N]."""
        with torch.inference_mode():
            return self.network.value(self._tensor(observation)).cpu().numpy()

    def evaluate(
        self, observation: Tensor, action: Tensor, action_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(log_prob [B], entropy [B], value [B]) of given actions under the present weights, with gradients.

        `action_mask` bool [B, A] is that under which they were chosen; None where all actions were legal.
        """
        output, value = self.network(observation)
        if action_mask is not None:
            output = self._masked(output, action_mask)
        log_prob, entropy = self._log_prob_entropy(output, action)
        return log_prob, entropy, value

    def env_action(self, action: np.ndarray) -> Any:
        """What `act` returned, as the environment's action space wants it."""
        return action

    def _tensor(self, observation: np.ndarray) -> Tensor:
        return torch.as_tensor(observation, dtype=torch.float32, device=self.device)

    def _masked(self, output: Tensor, action_mask: Tensor) -> Tensor:
        """The network's output, changed so that illegal actions have probability 0."""
        raise ConfigurationError(f"a policy over {self.action_space} takes no action mask; masks are for Discrete ones")

    def _sample(self, output: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _mode(self, output: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError
