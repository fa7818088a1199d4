import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.unroll_examples import by_loops, channel, column, detached, n_steps, random_unroll, unrolls

from agents.operators.returns import lambda_return, n_step_return

GAMMAS, LAMBDAS = st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.6, 1.0])


def lambda_reference(unroll, gamma, lambda_):
    """Return the weighted mean of all n-step returns, eq. 12.3 of Sutton & Barto 2018."""

    def one(t, n):
        _, last = n_steps(unroll, gamma, t, n, len(unroll.reward))
        total = lambda_ ** (last - 1) * n_steps(unroll, gamma, t, n, last)[0]
        for k in range(1, last):
            total += (1 - lambda_) * lambda_ ** (k - 1) * n_steps(unroll, gamma, t, n, k)[0]
        return total

    return by_loops(unroll, one)


@settings(max_examples=60)
@given(unroll=unrolls(), gamma=GAMMAS, n=st.sampled_from([1, 2, 3, 100]))
def test_n_step_returns_equal_their_definition(unroll, gamma, n):
    expected = by_loops(unroll, lambda t, e: n_steps(unroll, gamma, t, e, n)[0])
    torch.testing.assert_close(n_step_return(unroll, gamma, n), expected)


@settings(max_examples=60)
@given(unroll=unrolls(), gamma=GAMMAS, lambda_=LAMBDAS)
def test_lambda_returns_are_the_weighted_mean_of_n_step_returns(unroll, gamma, lambda_):
    torch.testing.assert_close(lambda_return(unroll, gamma, lambda_), lambda_reference(unroll, gamma, lambda_))


@given(unroll=unrolls(), gamma=GAMMAS)
def test_lambda_zero_is_one_step_and_lambda_one_all_steps(unroll, gamma):
    torch.testing.assert_close(lambda_return(unroll, gamma, 0.0), n_step_return(unroll, gamma, 1))
    torch.testing.assert_close(lambda_return(unroll, gamma, 1.0), n_step_return(unroll, gamma, len(unroll.reward)))


def test_returns_equal_values_worked_by_hand():
    unroll = column(reward=[1, 2, 4], value=[10, 20, 40], bootstrap=80)
    assert n_step_return(unroll, 0.5, 1).ravel().tolist() == [11, 22, 44]
    assert n_step_return(unroll, 0.5, 2).ravel().tolist() == [1 + 1 + 10, 2 + 2 + 20, 44]
    assert n_step_return(unroll, 0.5, 3).ravel().tolist() == [1 + 1 + 1 + 10, 2 + 2 + 20, 44]
    # From the last step back: 44; 2 + 0.5 (20 + 22) = 23; 1 + 0.5 (10 + 11.5) = 11.75.
    assert lambda_return(unroll, 0.5, 0.5).ravel().tolist() == [11.75, 23, 44]


def test_returns_across_episode_ends_equal_values_worked_by_hand():
    unroll = column(reward=[1, 2, 4, 8], value=[1, 1, 1, 1], bootstrap=16, terminated=[1], truncated={2: 6})
    assert n_step_return(unroll, 0.5, 4).ravel().tolist() == [1 + 1, 2, 4 + 3, 8 + 8]


def test_lambda_may_differ_from_step_to_step():
    unroll = column(reward=[1, 2, 4], value=[10, 20, 40], bootstrap=80)
    lambdas = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
    assert lambda_return(unroll, 0.5, lambdas).ravel().tolist() == [1 + 0.5 * 22, 22, 44]


@given(unroll=unrolls(channels=(1, 3)))
def test_every_reward_channel_has_its_own_return_and_discount(unroll):
    gammas = torch.tensor([0.9, 0.5, 1.0], dtype=torch.float64)[: unroll.reward.shape[2]]
    for c, gamma in enumerate(gammas.tolist()):
        alone = channel(unroll, c)
        torch.testing.assert_close(lambda_return(unroll, gammas, 0.8)[..., c], lambda_return(alone, gamma, 0.8))
        torch.testing.assert_close(n_step_return(unroll, gammas, 2)[..., c], n_step_return(alone, gamma, 2))


@pytest.mark.parametrize("seed", range(3))
def test_the_gradients_of_returns_are_right(seed):
    unroll, floats = detached(random_unroll(seed, steps=4))
    for function in (lambda u: lambda_return(u, 0.9, 0.8), lambda u: n_step_return(u, 0.9, 2)):
        assert torch.autograd.gradcheck(
            lambda reward, value, final_value, bootstrap_value, f=function: f(
                type(unroll)(reward, value, unroll.terminated, unroll.truncated, final_value, bootstrap_value)
            ),
            floats,
        )


def test_a_return_over_zero_steps_is_refused():
    with pytest.raises(ValueError, match="n=0 of an n-step return must be at least 1"):
        n_step_return(random_unroll(0), 0.9, 0)
