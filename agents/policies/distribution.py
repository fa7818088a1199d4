"""Distribution over actions: the meaning of a policy's outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from warren.errors import ConfigurationError
from warren.trees import map_tree


class Distribution(nn.Module):
    """A distribution over the values of one leaf of an action space, given by a network's output [..., size].

    Log-probabilities and entropies are [...]. Outputs, actions and masks of `Parts`, which is the distribution over a
    Dict or Tuple, are dicts of those of its leaves.
    """

    size: int  # numbers that it needs of the network
    has_chance = True  # False: one action has all the probability, so that no log-probability has a gradient

    @property
    def mask_size(self) -> int:
        """Return the number of actions that a mask covers."""
        return self.size

    def named_parts(self) -> Iterable[tuple[str, Distribution]]:
        """Return (name, distribution) of each leaf of the action space; the name of the only one is ""."""
        return [("", self)]

    def sample(self, output: Any, generator: torch.Generator) -> Any:
        """Draw an action; `generator` is on the CPU, wherever the output is."""
        raise NotImplementedError

    def drawn_by(self, output: Any, noise: Tensor) -> Any:
        """Draw an action by `noise` [..., size], exponentially distributed. Raises ConfigurationError if it cannot."""
        raise ConfigurationError("only Discrete actions are drawn by noise that is given")

    def sample_in_numpy(self, output: Any, generator: torch.Generator) -> Any:
        """Draw the action that `sample` would, from a numpy output to a numpy action."""
        with torch.inference_mode():
            return self.numpy(self.sample(map_tree(torch.from_numpy, output), generator))

    def uniform(self, output: Any, generator: torch.Generator) -> Any:
        """Draw an action uniformly among those that `output`, masked, allows."""
        raise NotImplementedError

    def noisy(self, action: Tensor, noise: Tensor) -> Tensor:
        """Return a Box action plus `noise` [..., A], in units of half its range; `env_action` keeps it in the bounds.

        Raises ConfigurationError for other actions.
        """
        raise ConfigurationError("only actions of one Box take noise; explore others by epsilon")

    def explored_by(self, output: Any, noise: Tensor, epsilon: float) -> Any:
        """Draw actions [...] by `noise` as in `drawn_by`: with probability `epsilon` uniformly, else the likeliest."""
        raise ConfigurationError("only Discrete actions are drawn by noise that is given")

    def bounded(self, action: Tensor) -> Tensor:
        """Turn a Box action, as the policy draws it, into [-1, 1], as critics see it.

        Raises ConfigurationError for actions that have no bounds.
        """
        raise ConfigurationError("only actions of a Box with bounds are seen by a critic; set network.box_actions")

    def mode(self, output: Any) -> Any:
        """Return the likeliest action."""
        raise NotImplementedError

    def log_prob(self, output: Any, action: Any) -> Tensor:
        """Return the log-probability [...] of `action` under `output` [..., size]."""
        raise NotImplementedError

    def log_prob_entropy(self, output: Any, action: Any) -> tuple[Tensor, Tensor]:
        """Return (log-probability of `action`, entropy), each [...], under `output` [..., size]."""
        raise NotImplementedError

    def masked(self, output: Any, action_mask: Any) -> Any:
        """Return `output` changed so that actions with False in `action_mask` bool [..., size] have probability 0.

        Raises ConfigurationError where actions are continuous.
        """
        raise ConfigurationError(
            "a policy over Box actions takes no action mask; masks are for Discrete, MultiDiscrete and MultiBinary ones"
        )

    def statistics(self, output: Any) -> Any:
        """Return what determines the distribution, [..., K]: the output, and parameters that no observation changes."""
        return output

    def kl(self, p: Any, q: Any) -> Any:
        """Return KL(p || q) [...] of two distributions of this kind, given by their `statistics`.

        Raises ConfigurationError where a class has none.
        """
        raise ConfigurationError(
            f"distribution {type(self).__name__} has no kl(), by which a teacher, a magnet and proximal_coefficient "
            "keep a policy near another; write it, or leave those out"
        )

    def env_action(self, action: Any) -> Any:
        """Return numpy actions [N, ...] as a vector environment's action space has them."""
        return action

    def own_action(self, action: Any) -> Any:
        """Undo `env_action` for actions [N, ...], as far as possible.

        Raises ConfigurationError for actions that the space does not hold.
        """
        raise ConfigurationError(
            f"{type(self).__name__} does not learn from recorded actions; give it own_action(action), or choose "
            "another distribution"
        )

    def tensors(self, action_mask: Any, device: torch.device) -> Any:
        """Return a numpy mask as `masked` takes it."""
        return torch.as_tensor(action_mask, device=device)

    def numpy(self, action: Any) -> Any:
        """Return an action in tensors as numpy arrays."""
        array: np.ndarray = action.cpu().numpy()
        return array
