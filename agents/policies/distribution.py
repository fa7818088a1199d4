"""What a distribution over actions is: the meaning of a policy's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from warren.errors import ConfigurationError
from warren.trees import map_tree


class Distribution(nn.Module):
    """Over the values of one leaf of an action space, from a network's output [..., size].

    Log-probabilities and entropies are [...]. Outputs, actions and masks of `Parts`, which is the distribution over a
    Dict or Tuple, are dicts of those of its leaves.
    """

    size: int  # numbers that it needs of the network

    def sample(self, output: Any, generator: torch.Generator) -> Any:
        """An action; draws on the CPU, wherever the output is."""
        raise NotImplementedError

    def drawn_by(self, output: Any, noise: Tensor) -> Any:
        """The action that `noise` [..., size], exponentially distributed, draws. Raises ConfigurationError for none."""
        raise ConfigurationError("only Discrete actions are drawn by noise that is given")

    def sample_in_numpy(self, output: Any, generator: torch.Generator) -> Any:
        """`sample` of an output in numpy: the action that it would be, in numpy."""
        with torch.inference_mode():
            return self.numpy(self.sample(map_tree(torch.from_numpy, output), generator))

    def mode(self, output: Any) -> Any:
        """The likeliest action."""
        raise NotImplementedError

    def log_prob(self, output: Any, action: Any) -> Tensor:
        """The log-probability of `action`."""
        raise NotImplementedError

    def log_prob_entropy(self, output: Any, action: Any, exact: bool = True) -> tuple[Tensor, Tensor]:
        """Return (log-probability of `action`, entropy).

        Where `exact` is false the entropy is only looked at: one that is dear to compute may be -log_prob instead.
        """
        raise NotImplementedError

    def masked(self, output: Any, action_mask: Any) -> Any:
        """`output`, changed so that actions whose place in `action_mask` bool [..., size] is False have probability 0.

        Raises ConfigurationError where actions are continuous.
        """
        raise ConfigurationError(
            "a policy over Box actions takes no action mask; masks are for Discrete, MultiDiscrete and MultiBinary ones"
        )

    def statistics(self, output: Any) -> Any:
        """What determines the distribution, [..., K]: the output, and parameters that no observation changes."""
        return output

    def kl(self, p: Any, q: Any) -> Any:
        """KL(p || q) [...] of two distributions of this kind, given by their `statistics`."""
        raise NotImplementedError

    def env_action(self, action: Any) -> Any:
        """Actions [N, ...] as numpy arrays -> as a vector environment's action space has them."""
        return action

    def tensors(self, action_mask: Any, device: torch.device) -> Any:
        """A mask in numpy as `masked` takes it."""
        return torch.as_tensor(action_mask, device=device)

    def numpy(self, action: Any) -> Any:
        """An action in tensors as numpy arrays."""
        array: np.ndarray = action.cpu().numpy()
        return array
