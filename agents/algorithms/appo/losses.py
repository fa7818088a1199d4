"""The loss of APPO: PPO's on V-trace's advantages, as RLlib's (IMPACT, Luo et al. 2020) has it."""

from __future__ import annotations

import torch
from torch import Tensor

from agents.operators.losses import approximate_kl, clipped_surrogate, target_ratio, value_loss


def appo_loss(
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    target_log_prob: Tensor,
    advantage: Tensor,
    value: Tensor,
    target: Tensor,
    entropy: Tensor,
    *,
    clip_range: float,
    value_coefficient: float,
    entropy_coefficient: float,
    target_clip: float = 2.0,
    value_scale: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return (loss, its terms by name without gradients) of a minibatch; all tensors [B].

    `target_log_prob` is of pi', the policy before the first minibatch of an update, for which V-trace was computed;
    `advantage` and `target` are V-trace's for pi' against mu, the policy that acted (`behaviour_log_prob`). They bring
    the data from mu to pi', and clipping keeps pi near pi' over the minibatches. `log_prob`, `value` and `entropy` have
    gradients. At pi = pi' the policy's gradient is IMPALA's, where the ratio is not clipped (see `target_ratio`).
    """
    ratio = target_ratio(log_prob, behaviour_log_prob, target_log_prob, target_clip)
    policy_term = clipped_surrogate(ratio, advantage, clip_range)
    value_term = value_loss(value, target, scale=value_scale)
    entropy_term = entropy.mean()
    loss = policy_term + value_coefficient * value_term - entropy_coefficient * entropy_term
    with torch.no_grad():
        log_ratio = log_prob - target_log_prob
        kl = approximate_kl(log_ratio, log_ratio.exp())
        clip_fraction = ((ratio - 1).abs() > clip_range).float().mean()
    terms = {
        "policy_loss": policy_term, "value_loss": value_term, "entropy": entropy_term,
        "approx_kl": kl, "clip_fraction": clip_fraction,
    }  # fmt: skip
    return loss, {name: term.detach() for name, term in terms.items()}
