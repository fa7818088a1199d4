"""V-trace: returns and advantages of the policy that learns, from the steps of an older one that acted."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agents.operators.unrolls import Unroll, sum_from_the_end


class VTrace(NamedTuple):
    """Constants for the losses: no gradient flows through any of them."""

    target: Tensor  # v_s, shaped as reward: the value is trained towards it
    advantage: Tensor  # rho_s (r_s + gamma v_{s+1} - V_s), shaped as reward: it weights the policy gradient
    rho: Tensor  # min(rho_bar, pi / mu), [T, N]


def vtrace(
    unroll: Unroll,
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    gamma: float | Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """Compute V-trace, section 4.1 of Espeholt et al. 2018.

    `log_prob` [T, N] is of the policy pi that learns, `behaviour_log_prob` [T, N] of mu, which acted.

    v_s = V_s + delta_s + gamma c_s (v_{s+1} - V_{s+1})                                     (remark 1)
    delta_s = rho_s (r_s + gamma V_{s+1} - V_s), rho_s = min(rho_bar, pi / mu), c_s = lambda min(c_bar, pi / mu)

    The unroll's values have to be of the learning weights. `rho_bar` decides to which policy's value v converges
    (infinity: pi's; the smaller, the nearer to mu's), `c_bar` only how fast; the paper wants rho_bar >= c_bar. Either
    may be math.inf. On-policy, with both at least 1, v_s is the lambda return. `gamma` is a number or [C]. Raises
    ValueError for log-probabilities that are not [T, N].
    """
    for name, tensor in (("log_prob", log_prob), ("behaviour_log_prob", behaviour_log_prob)):
        if tensor.shape != unroll.terminated.shape:
            raise ValueError(f"{name} must be {list(unroll.terminated.shape)}, is {list(tensor.shape)}")
    with torch.no_grad():
        ratio = unroll.per_channel((log_prob - behaviour_log_prob).exp())
        rho = ratio.clamp(max=rho_bar)
        delta = rho * (unroll.reward + gamma * unroll.next_value - unroll.value)
        decay = gamma * lambda_ * ratio.clamp(max=c_bar).masked_fill(~unroll.goes_on, 0)
        target = unroll.value + sum_from_the_end(delta, decay)
        advantage = rho * (unroll.reward + gamma * unroll.followed_by(target) - unroll.value)
        return VTrace(target, advantage, rho.reshape(log_prob.shape))
