import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.unroll_examples import by_loops, channel, column, detached, n_steps, random_unroll, unrolls, what_follows

from agents.operators.returns import n_step_return
from agents.operators.upgo import upgo_return

GAMMAS = st.sampled_from([0.0, 0.9, 1.0])


def reference(unroll, gamma):
    """Return UPGO returns: extend each step's return while the next step does no worse than its value."""

    def one(t, n):
        steps = 1
        while t + steps < len(unroll.reward):
            value, goes_on = what_follows(unroll, t + steps - 1, n)
            if not goes_on or n_steps(unroll, gamma, t + steps, n, 1)[0] < value:
                break
            steps += 1
        return n_steps(unroll, gamma, t, n, steps)[0]

    return by_loops(unroll, one)


@settings(max_examples=80)
@given(unroll=unrolls(), gamma=GAMMAS)
def test_upgo_follows_the_trajectory_while_it_goes_better_than_expected(unroll, gamma):
    torch.testing.assert_close(upgo_return(unroll, gamma), reference(unroll, gamma))


@given(unroll=unrolls(), gamma=GAMMAS, surprise=st.sampled_from([1, -1]))
def test_upgo_is_the_return_after_good_surprises_and_one_step_after_bad_ones(unroll, gamma, surprise):
    unroll = type(unroll)(
        unroll.reward + 100 * surprise, unroll.value, unroll.terminated, unroll.truncated,
        unroll.final_value, unroll.bootstrap_value,
    )  # fmt: skip
    steps = len(unroll.reward) if surprise > 0 else 1
    torch.testing.assert_close(upgo_return(unroll, gamma), n_step_return(unroll, gamma, steps))


def test_upgo_equals_values_worked_by_hand():
    unroll = column(reward=[1, 2, 0, 3], value=[5, 1, 4, 1], bootstrap=2)
    # better: 1 + 1 >= 5 no; 2 + 4 >= 1 yes; 0 + 1 >= 4 no; 3 + 2 >= 1 yes
    # step 3: 3 + 2; step 2 follows it: 0 + 5; step 1 stops before step 2: 2 + 4; step 0 follows step 1: 1 + 6
    assert upgo_return(unroll, 1.0).ravel().tolist() == [7, 6, 5, 5]


def test_a_step_that_goes_exactly_as_expected_is_followed():
    unroll = column(reward=[0, 1, 9], value=[0, 3, 2], bootstrap=0)
    assert upgo_return(unroll, 1.0).ravel().tolist() == [10, 10, 9]


@given(unroll=unrolls(channels=(2,)))
def test_every_reward_channel_has_its_own_upgo_return(unroll):
    for c in range(2):
        torch.testing.assert_close(upgo_return(unroll, 0.9)[..., c], upgo_return(channel(unroll, c), 0.9))


def test_no_gradient_flows_through_upgo():
    unroll, _ = detached(random_unroll(0))
    assert not upgo_return(unroll, 0.9).requires_grad
