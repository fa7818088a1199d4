"""UPGO, the upgoing policy gradient: learn from what went better than expected."""

from __future__ import annotations

import torch
from torch import Tensor

from agents.operators.returns import lambda_return
from agents.operators.unrolls import Unroll


def upgo_return(unroll: Unroll, gamma: float | Tensor) -> Tensor:
    """Return the upgoing return, shaped as reward, without gradients.

    G_t = r_t + gamma G_{t+1} where the next step goes at least as well as expected (r_{t+1} + gamma V_{t+2} >=
    V_{t+1}), else r_t + gamma V_{t+1}: methods of Vinyals et al. 2019 (AlphaStar), there with gamma = 1. The policy
    gradient has to be weighted by min(1, pi / mu) (G_t - V_t), with `rho` of `vtrace`.
    """
    with torch.no_grad():
        better = unroll.reward + gamma * unroll.next_value >= unroll.value
        # The last step is followed by its bootstrap value either way.
        follow = torch.cat([better[1:], torch.ones_like(better[:1])])
        return lambda_return(unroll, gamma, follow.to(unroll.value.dtype))
