import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.unroll_examples import by_loops, channel, column, detached, random_unroll, unrolls, what_follows

from agents.operators.returns import lambda_return
from agents.operators.vtrace import vtrace

GAMMAS, BARS = st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.5, 1.0, 2.0, math.inf])


def log_probs(unroll, seed=1):
    """Return log-probabilities by the target and the behaviour policy, [2, T, N], with ratios on both sides of 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, *unroll.reward.shape[:2], generator=generator, dtype=torch.float64)


def reference(unroll, log_prob, behaviour, gamma, rho_bar, c_bar, lambda_):
    """Return (v_s, advantage) by eq. 1 of the paper, as plain loops."""
    ratio = [[math.exp(p - b) for p, b in zip(*rows, strict=True)] for rows in zip(log_prob, behaviour, strict=True)]

    def target(s, n):
        total, trace = unroll.value[s, n].item(), 1.0
        for t in range(s, len(unroll.reward)):
            value, goes_on = what_follows(unroll, t, n)
            delta = unroll.reward[t, n].item() + gamma * value - unroll.value[t, n].item()
            total += gamma ** (t - s) * trace * min(rho_bar, ratio[t][n]) * delta
            trace *= lambda_ * min(c_bar, ratio[t][n])
            if not goes_on:
                break
        return total

    def advantage(s, n):
        value, goes_on = what_follows(unroll, s, n)
        following = target(s + 1, n) if goes_on and s + 1 < len(unroll.reward) else value
        delta = unroll.reward[s, n].item() + gamma * following - unroll.value[s, n].item()
        return min(rho_bar, ratio[s][n]) * delta

    return by_loops(unroll, target), by_loops(unroll, advantage)


@settings(max_examples=80)
@given(unroll=unrolls(), gamma=GAMMAS, rho_bar=BARS, c_bar=BARS, lambda_=st.sampled_from([0.0, 0.9, 1.0]))
def test_vtrace_equals_the_sums_of_the_paper(unroll, gamma, rho_bar, c_bar, lambda_):
    log_prob, behaviour = log_probs(unroll)
    result = vtrace(unroll, log_prob, behaviour, gamma, rho_bar, c_bar, lambda_)
    expected = reference(unroll, log_prob.tolist(), behaviour.tolist(), gamma, rho_bar, c_bar, lambda_)
    torch.testing.assert_close((result.target, result.advantage), expected)
    torch.testing.assert_close(result.rho, (log_prob - behaviour).exp().clamp(max=rho_bar))


@given(unroll=unrolls(), gamma=GAMMAS, bar=st.sampled_from([1.0, math.inf]), lambda_=st.sampled_from([0.5, 1.0]))
def test_on_policy_the_target_is_the_lambda_return(unroll, gamma, bar, lambda_):
    log_prob, _ = log_probs(unroll)
    result = vtrace(unroll, log_prob, log_prob, gamma, bar, bar, lambda_)
    torch.testing.assert_close(result.target, lambda_return(unroll, gamma, lambda_))
    if lambda_ == 1:
        torch.testing.assert_close(result.advantage, lambda_return(unroll, gamma, 1.0) - unroll.value)


@given(unroll=unrolls())
def test_steps_that_the_policy_would_never_take_change_no_target(unroll):
    result = vtrace(unroll, torch.full(unroll.reward.shape, -1e4), torch.zeros(unroll.reward.shape), 0.9)
    assert torch.equal(result.target, unroll.value)
    assert not result.advantage.any()


def test_vtrace_equals_values_worked_by_hand():
    unroll = column(reward=[1, 2], value=[4, 6], bootstrap=8)
    log_prob = torch.tensor([[2.0], [0.5]], dtype=torch.float64).log()  # with behaviour probability 1: ratios 2 and 0.5
    result = vtrace(unroll, log_prob, torch.zeros_like(log_prob), gamma=0.5)
    # delta: 1 (1 + 3 - 4) = 0 and 0.5 (2 + 4 - 6) = 0, so the values are right already
    assert result.target.ravel().tolist() == [4, 6]
    assert result.advantage.ravel().tolist() == [0, 0]
    unroll = column(reward=[3, 4], value=[4, 6], bootstrap=8)
    result = vtrace(unroll, log_prob, torch.zeros_like(log_prob), gamma=0.5)
    # delta: 1 (3 + 3 - 4) = 2 and 0.5 (4 + 4 - 6) = 1; v_1 = 6 + 1, v_0 = 4 + 2 + 0.5 * 1 * (7 - 6)
    assert result.target.ravel().tolist() == pytest.approx([6.5, 7])
    assert result.advantage.ravel().tolist() == pytest.approx([3 + 0.5 * 7 - 4, 0.5 * (4 + 0.5 * 8 - 6)])
    assert result.rho.ravel().tolist() == pytest.approx([1, 0.5])


@given(unroll=unrolls(channels=(1, 3)))
def test_every_reward_channel_has_its_own_target_under_the_same_ratios(unroll):
    log_prob, behaviour = log_probs(unroll)
    gammas = torch.tensor([0.9, 0.5, 1.0], dtype=torch.float64)[: unroll.reward.shape[2]]
    together = vtrace(unroll, log_prob, behaviour, gammas)
    for c, gamma in enumerate(gammas.tolist()):
        alone = vtrace(channel(unroll, c), log_prob, behaviour, gamma)
        torch.testing.assert_close((together.target[..., c], together.advantage[..., c]), alone[:2])
        torch.testing.assert_close(together.rho, alone.rho)


def test_no_gradient_flows_through_targets_and_advantages():
    unroll, _ = detached(random_unroll(0))
    log_prob, behaviour = log_probs(unroll)
    assert not any(tensor.requires_grad for tensor in vtrace(unroll, log_prob.requires_grad_(), behaviour, 0.9))


@pytest.mark.parametrize("rho_bar", [0.3, 1.0, 2.0, math.inf])
def test_rho_bar_decides_which_policys_value_is_found(rho_bar):
    pi, mu, reward = (torch.tensor(x, dtype=torch.float64) for x in ([0.7, 0.2, 0.1], [0.2, 0.3, 0.5], [1.0, 5.0, 9.0]))
    between = torch.minimum(rho_bar * mu, pi)  # eq. 3 of the paper: the policy whose value V-trace converges to
    value = (between * reward).sum() / between.sum()
    one_step = column(reward.tolist(), [value] * 3, bootstrap=0, terminated=[0, 1, 2])  # each action once
    target, _, _ = vtrace(one_step, pi.log()[:, None], mu.log()[:, None], 0.9, rho_bar)
    assert (mu * target.squeeze(1)).sum().item() == pytest.approx(value.item())


def test_log_probabilities_of_another_shape_are_refused_by_name():
    unroll = random_unroll(0, steps=3, envs=2)
    with pytest.raises(ValueError, match=r"behaviour_log_prob must be \[3, 2\], is \[3, 2, 1\]"):
        vtrace(unroll, torch.zeros(3, 2), torch.zeros(3, 2, 1), 0.9)
