"""The loss of A2C: Mnih et al. 2016 (A3C), computed synchronously."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from agents.operators.losses import policy_gradient, value_loss
from agents.operators.returns import lambda_return
from agents.operators.unrolls import Unroll, chosen, weighted_channels


def a2c_loss(
    unroll: Unroll,
    log_prob: Tensor,
    entropy: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    value_coefficient: float,
    entropy_coefficient: float,
    standardize: Callable[[Tensor], Tensor] | None = None,
    channel_coefficients: Tensor | None = None,
    value_scale: Tensor | None = None,
    valid: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return (loss, its terms by name without gradients) of unrolls [T, N] in which the learning weights have acted.

    -E[log pi A] + value_coefficient E[(G - V)^2] - entropy_coefficient E[H], with lambda returns G and A = G - V both
    constant; gae_lambda = 1 is the paper's. `unroll.value`, `log_prob` and `entropy` [T, N] have gradients. With reward
    channels A is their sum weighted by `channel_coefficients` [C], and the value's error is their mean; both are in
    units of `value_scale`, if it is given. Means are over the steps that are `valid` bool [T, N]; None: over all.
    """
    target, advantage = a2c_constants(unroll, gamma, gae_lambda, standardize, channel_coefficients, value_scale, valid)
    log_prob, entropy, value = chosen(valid, log_prob, entropy, unroll.value)
    policy_term = policy_gradient(log_prob, advantage)
    value_term = value_loss(value, target, scale=value_scale)
    entropy_term = entropy.mean()
    loss = policy_term + value_coefficient * value_term - entropy_coefficient * entropy_term
    terms = {"policy_loss": policy_term, "value_loss": value_term, "entropy": entropy_term}
    return loss, {name: term.detach() for name, term in terms.items()}


@torch.no_grad()
def a2c_constants(
    unroll: Unroll,
    gamma: float,
    gae_lambda: float,
    standardize: Callable[[Tensor], Tensor] | None,
    channel_coefficients: Tensor | None = None,
    value_scale: Tensor | None = None,
    valid: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (target, advantage) of the loss; the arguments are those of `a2c_loss`."""
    target = lambda_return(unroll, gamma, gae_lambda)
    advantage = weighted_channels(target - unroll.value, channel_coefficients, value_scale)
    target, advantage = chosen(valid, target, advantage)
    return target, advantage if standardize is None else standardize(advantage)
