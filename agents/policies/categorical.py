"""Categorical distribution over Discrete actions, and several of them over MultiDiscrete and MultiBinary ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from agents.operators.divergences import categorical_kl
from agents.policies.distribution import Distribution
from warren.errors import ConfigurationError

# The logit of an illegal action: its probability is exactly 0, and 0 * log 0 in the entropy stays 0 instead of nan.
ILLEGAL = -1e8


class Categorical(Distribution):
    """pi(a|s) = softmax(logits(s))_a. Closed forms, not torch.distributions, which costs six times as much per call.

    Actions are int64 [...] from 0 on; the environment's begin with `start`.
    """

    def __init__(self, actions: int, start: int = 0) -> None:
        super().__init__()
        self.size, self._start = actions, start

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return _draw(output, generator)

    def drawn_by(self, output: Tensor, noise: Tensor) -> Tensor:
        return _drawn_by(output, noise.log())

    def sample_in_numpy(self, output: np.ndarray, generator: torch.Generator) -> np.ndarray:
        # For one observation numpy takes a third of torch's time.
        noise = torch.empty(output.shape).exponential_(generator=generator).numpy()
        action: np.ndarray = (output - np.log(noise)).argmax(-1)
        return action

    def scores(self, output: Tensor) -> Tensor:
        """Return a number for each action, [..., A], the greatest for the likeliest."""
        return output

    def uniform(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return _draw(_level(self.scores(output)), generator)

    def explored_by(self, output: Tensor, noise: Tensor, epsilon: float) -> Tensor:
        # The least of exponential numbers is independent of its index: it decides whether to explore, the index where.
        scores = self.scores(output)
        legal = scores > ILLEGAL / 2
        least, uniform = noise.to(output.device).masked_fill(~legal, torch.inf).min(-1)
        return torch.where(torch.exp(-legal.sum(-1) * least) < epsilon, uniform, scores.argmax(-1))

    def probabilities(self, output: Tensor) -> Tensor:
        """Return float32 [..., A]."""
        return torch.softmax(output, -1)

    def mode(self, output: Tensor) -> Tensor:
        return output.argmax(-1)

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        return torch.log_softmax(output, -1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(output, -1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy

    def masked(self, output: Tensor, action_mask: Tensor) -> Tensor:
        return output.masked_fill(~action_mask, ILLEGAL)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        return categorical_kl(p, q)

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return action + self._start if self._start else action

    def own_action(self, action: np.ndarray) -> np.ndarray:
        return _counted(action, action - self._start, (), np.array(self.size))


class MultiCategorical(Distribution):
    """K independent choices among `counts` actions each, their logits and masks one after the other: [..., sum].

    Actions are int64 [..., K] from 0 on; the environment's are of `shape`, begin with `starts` and have `dtype`.
    """

    _real: Tensor  # bool [K, longest]: which places of the rows are actions
    _place: Tensor  # int64 [K, longest]: place of each in the output; 0 beyond a row's actions

    def __init__(
        self, counts: Sequence[int], starts: np.ndarray | int, shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        super().__init__()
        self.size, self._counts = sum(counts), list(counts)
        self._starts, self._shape, self._dtype = starts, shape, dtype
        self._padded = len(set(counts)) > 1
        real = torch.arange(max(counts)) < torch.tensor(self._counts)[:, None]
        self.register_buffer("_real", real, persistent=False)
        self.register_buffer("_place", (real.view(-1).cumsum(0) - 1).view(real.shape) * real, persistent=False)

    def _rows(self, output: Tensor) -> Tensor:
        """Return [..., sum] as log-probabilities [..., K, longest]."""
        if not self._padded:
            return torch.log_softmax(output.reshape(*output.shape[:-1], *self._real.shape), -1)
        return torch.log_softmax(output[..., self._place].masked_fill(~self._real, ILLEGAL), -1)

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return _draw(self._rows(output), generator)

    def uniform(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return _draw(_level(self._rows(_level(output))), generator)

    def mode(self, output: Tensor) -> Tensor:
        return self._rows(output).argmax(-1)

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        return self._rows(output).gather(-1, action.unsqueeze(-1)).squeeze(-1).sum(-1)

    def log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._rows(output)
        entropy = -(log_probs.exp() * log_probs).sum((-2, -1))
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1).sum(-1), entropy

    def masked(self, output: Tensor, action_mask: Tensor) -> Tensor:
        return output.masked_fill(~action_mask, ILLEGAL)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        return categorical_kl(self._rows(p), self._rows(q)).sum(-1)  # log-probabilities are logits too

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return (action.reshape(len(action), *self._shape) + self._starts).astype(self._dtype)

    def own_action(self, action: np.ndarray) -> np.ndarray:
        if action.shape[1:] == self._shape:
            action = action.astype(np.int64) if action.dtype == np.bool_ else action
            flat = (action - self._starts).reshape(len(action), -1)
            return _counted(action, flat, (len(self._counts),), np.array(self._counts))
        return _counted(action, action, self._shape, np.array(0))


def _counted(given: np.ndarray, own: np.ndarray, shape: tuple[int, ...], counts: np.ndarray) -> np.ndarray:
    """Return `own` as int64 [N, *shape]; raise ConfigurationError where it is not within 0 and `counts` - 1."""
    if own.shape[1:] != shape or own.dtype.kind not in "iu":
        raise ConfigurationError(f"action must be int64 [..., {list(shape)}], is {given.dtype} {list(given.shape)}")
    if (outside := (own < 0) | (own >= counts)).any():
        where = np.argwhere(outside)[0]
        raise ConfigurationError(f"action holds {given[tuple(where)[: given.ndim]]} at {where.tolist()}")
    return own.astype(np.int64)


def _level(logits: Tensor) -> Tensor:
    """Return logits that make all legal actions equally likely."""
    return torch.where(logits > ILLEGAL / 2, 0.0, ILLEGAL)


def _draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw int64 [...] by Gumbel-max: argmax(log p - log E) with E ~ Exp(1) has distribution p; logits: log p + c."""
    return _drawn_by(logits, torch.empty_like(logits, device="cpu").exponential_(generator=generator).log_())


def _drawn_by(logits: Tensor, log_noise: Tensor) -> Tensor:
    return (logits - log_noise.to(logits.device)).argmax(-1)
