"""Entropy of distributions and Kullback-Leibler divergence between them, without samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# A mixture of gaussians near the logistic density of scale 1/2, fitted so that 2 E|u + l| errs by at most 7.6e-5.
_LOGISTIC_SHARES = (0.11066298, 0.32320743, 0.56612959)
_LOGISTIC_VARIANCES = (1.45810858**2, 0.57631435**2, 0.92055011**2)


def masked_log_softmax(logits: Tensor, action_mask: Tensor | None = None) -> Tensor:
    """Return log pi [..., A] of logits [..., A], and 0 where `action_mask` bool [..., A] is False.

    That 0 is not the log-probability of an illegal action: it makes the action drop out of every sum of p log p
    without a NaN in its gradient.
    """
    if action_mask is None:
        return torch.log_softmax(logits, -1)
    illegal = ~action_mask
    masked = logits.masked_fill(illegal, torch.finfo(logits.dtype).min)
    return torch.log_softmax(masked, -1).masked_fill(illegal, 0)


def categorical_entropy(logits: Tensor, action_mask: Tensor | None = None) -> Tensor:
    """Return -sum_a p_a log p_a, [...], of logits [..., A]; illegal actions contribute 0."""
    log_p = masked_log_softmax(logits, action_mask)
    return -(_probabilities(log_p, action_mask) * log_p).sum(-1)


def categorical_kl(logits: Tensor, other_logits: Tensor, action_mask: Tensor | None = None) -> Tensor:
    """Return KL(p || q) = sum_a p_a (log p_a - log q_a), [...], of p and q given by their logits [..., A].

    `action_mask` bool [..., A] is the mask of both; illegal actions contribute 0.
    """
    log_p, log_q = masked_log_softmax(logits, action_mask), masked_log_softmax(other_logits, action_mask)
    return (_probabilities(log_p, action_mask) * (log_p - log_q)).sum(-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Return the entropy sum_i log(sigma_i sqrt(2 pi e)), [...], of a diagonal Gaussian [..., A]."""
    return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


def mean_log_slope(mean: Tensor, log_std: Tensor) -> Tensor:
    """Return E[log tanh'(u)], u ~ N(mean, exp(log_std)^2), within 1e-4; `mean` [..., A], `log_std` [..., A] or [A].

    log tanh'(u) = 2 log 2 - 2 E|u + l|, where l has the logistic density sech^2(l) / 2. A mixture of three gaussians is
    close to that density (Monahan and Stefanski 1992), and for gaussian x the mean of |x| is
    sigma sqrt(2 / pi) exp(-mu^2 / (2 sigma^2)) + mu erf(mu / (sigma sqrt 2)).
    """
    ones = [1] * mean.dim()
    shares, variances = (mean.new_tensor(of).reshape(-1, *ones) for of in (_LOGISTIC_SHARES, _LOGISTIC_VARIANCES))
    deviation = torch.sqrt(torch.exp(2 * log_std) + variances)
    scaled = mean / deviation * math.sqrt(0.5)
    folded = math.sqrt(2 / math.pi) * deviation * torch.exp(-scaled.square()) + mean * torch.erf(scaled)
    return 2 * (math.log(2) - (shares * folded).sum(0))


def gaussian_kl(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """Return KL(p || q), [...], of diagonal Gaussians p and q [..., A]; a log_std [A] serves all.

    sum_i log(sigma_q / sigma_p) + (sigma_p^2 + (mu_p - mu_q)^2) / (2 sigma_q^2) - 1/2
    """
    log_ratio = log_std - other_log_std
    distance = (mean - other_mean) * torch.exp(-other_log_std)
    return (0.5 * (torch.exp(2 * log_ratio) + distance.square() - 1) - log_ratio).sum(-1)


def _probabilities(log_p: Tensor, action_mask: Tensor | None) -> Tensor:
    return log_p.exp() if action_mask is None else log_p.exp() * action_mask
