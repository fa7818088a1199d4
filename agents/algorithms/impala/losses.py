"""The loss of IMPALA: Espeholt et al. 2018, with AlphaStar's UPGO term if wanted."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from agents.operators.losses import policy_gradient, value_loss
from agents.operators.unrolls import Unroll, chosen, weighted_channels
from agents.operators.upgo import upgo_return
from agents.operators.vtrace import vtrace


def impala_loss(
    unroll: Unroll,
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    entropy: Tensor,
    *,
    gamma: float,
    rho_bar: float,
    c_bar: float,
    value_coefficient: float,
    entropy_coefficient: float,
    lambda_: float = 1.0,
    upgo_coefficient: float = 0.0,
    standardize: Callable[[Tensor], Tensor] | None = None,
    channel_coefficients: Tensor | None = None,
    value_scale: Tensor | None = None,
    valid: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return (loss, its terms by name without gradients) of unrolls [T, N]; section 4.2 of the paper, as means.

    -E[log pi rho A] + value_coefficient E[(v - V)^2] - entropy_coefficient E[H], with V-trace's v and rho A constant;
    plus upgo_coefficient times -E[log pi rho (G - V)] with UPGO's G (Vinyals et al. 2019). `unroll.value` is of the
    weights that learn and has gradients, as `log_prob` and `entropy` [T, N]; `behaviour_log_prob` is of those that
    acted. Of an unroll with reward channels advantages are the sum by `channel_coefficients` [C], and the value's error
    is the mean over them, both in units of `value_scale`, if it is given. `standardize`, if it is, is of rho A, and of
    rho (G - V), as they are multiplied by the gradient. `rho` among the terms is the mean importance weight: near 1
    while data is fresh. Means are over the steps that are `valid` bool [T, N]; None: over all.
    """
    corrected = vtrace(unroll, log_prob, behaviour_log_prob, gamma, rho_bar, c_bar, lambda_)
    advantage = weighted_channels(corrected.advantage, channel_coefficients, value_scale)
    advantage, target, rho = chosen(valid, advantage, corrected.target, corrected.rho)
    log_prob, entropy, value = chosen(valid, log_prob, entropy, unroll.value)
    policy_term = policy_gradient(log_prob, advantage if standardize is None else standardize(advantage))
    value_term = value_loss(value, target, scale=value_scale)
    entropy_term = entropy.mean()
    loss = policy_term + value_coefficient * value_term - entropy_coefficient * entropy_term
    terms = {
        "policy_loss": policy_term, "value_loss": value_term, "entropy": entropy_term, "rho": rho.mean()
    }  # fmt: skip
    if upgo_coefficient:
        with torch.no_grad():
            upgoing = upgo_return(unroll, gamma) - unroll.value
            (upgoing,) = chosen(valid, weighted_channels(upgoing, channel_coefficients, value_scale))
            upgoing = rho * upgoing
        terms["upgo_loss"] = policy_gradient(log_prob, upgoing if standardize is None else standardize(upgoing))
        loss = loss + upgo_coefficient * terms["upgo_loss"]
    return loss, {name: term.detach() for name, term in terms.items()}
