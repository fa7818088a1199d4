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
    plus upgo_coefficient times -E[log pi rho (G - V)] with UPGO's G (Vinyals et al. 2019). `unroll.value`, `log_prob`
    and `entropy` [T, N] are of the learning weights and have gradients; `behaviour_log_prob` is of the weights that
    acted. With reward channels the advantage is their sum weighted by `channel_coefficients` [C], and the value's error
    is their mean; both are in units of `value_scale`, if it is given. `standardize`, if it is given, is applied to
    rho A and rho (G - V). The term `rho` is the mean importance weight: near 1 while data is fresh. Means are over the
    steps that are `valid` bool [T, N]; None: over all.
    """
    constants = impala_constants(
        unroll, log_prob, behaviour_log_prob, gamma=gamma, rho_bar=rho_bar, c_bar=c_bar, lambda_=lambda_,
        upgo=bool(upgo_coefficient), standardize=standardize, channel_coefficients=channel_coefficients,
        value_scale=value_scale, valid=valid,
    )  # fmt: skip
    log_prob, entropy, value = chosen(valid, log_prob, entropy, unroll.value)
    policy_term = policy_gradient(log_prob, constants["advantage"])
    value_term = value_loss(value, constants["target"], scale=value_scale)
    entropy_term = entropy.mean()
    loss = policy_term + value_coefficient * value_term - entropy_coefficient * entropy_term
    terms = {
        "policy_loss": policy_term, "value_loss": value_term, "entropy": entropy_term, "rho": constants["rho"].mean()
    }  # fmt: skip
    if upgo_coefficient:
        terms["upgo_loss"] = policy_gradient(log_prob, constants["upgoing"])
        loss = loss + upgo_coefficient * terms["upgo_loss"]
    return loss, {name: term.detach() for name, term in terms.items()}


@torch.no_grad()
def impala_constants(
    unroll: Unroll,
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    *,
    gamma: float,
    rho_bar: float,
    c_bar: float,
    lambda_: float,
    upgo: bool,
    standardize: Callable[[Tensor], Tensor] | None = None,
    channel_coefficients: Tensor | None = None,
    value_scale: Tensor | None = None,
    valid: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return `target`, `advantage` and `rho` of the loss, and UPGO's advantage, `upgoing`, if `upgo`.

    The other arguments are those of `impala_loss`.
    """
    corrected = vtrace(unroll, log_prob, behaviour_log_prob, gamma, rho_bar, c_bar, lambda_)
    advantage = weighted_channels(corrected.advantage, channel_coefficients, value_scale)
    advantage, target, rho = chosen(valid, advantage, corrected.target, corrected.rho)
    found = {"target": target, "advantage": advantage if standardize is None else standardize(advantage), "rho": rho}
    if upgo:
        upgoing = upgo_return(unroll, gamma) - unroll.value
        (upgoing,) = chosen(valid, weighted_channels(upgoing, channel_coefficients, value_scale))
        upgoing = rho * upgoing
        found["upgoing"] = upgoing if standardize is None else standardize(upgoing)
    return found
