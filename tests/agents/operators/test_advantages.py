import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.unroll_examples import channel, detached, random_unroll, unrolls

from agents.operators.advantages import gae, generalized_advantage
from agents.operators.returns import n_step_return


def reference(reward, value, terminated, truncated, final_value, bootstrap_value, gamma, lam):
    """Return the advantages by definition: A_t = sum_k (gamma lambda)^k delta_{t+k} up to the end of t's episode."""
    steps, envs = reward.shape
    advantage = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            for k in range(t, steps):
                if terminated[k, n]:
                    following = 0.0
                elif truncated[k, n]:
                    following = final_value[k, n]
                else:
                    following = value[k + 1, n] if k + 1 < steps else bootstrap_value[n]
                delta = reward[k, n] + gamma * following - value[k, n]
                advantage[t, n] += (gamma * lam) ** (k - t) * delta
                if terminated[k, n] or truncated[k, n]:
                    break
    return advantage


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 12),
    envs=st.integers(1, 4),
    ending=st.sampled_from([0.0, 0.2, 0.7]),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    lam=st.sampled_from([0.0, 0.95, 1.0]),
)
def test_advantages_equal_their_definition(seed, steps, envs, ending, gamma, lam):
    generator = np.random.default_rng(seed)
    shape = (steps, envs)
    reward, value = generator.normal(size=(2, *shape)).astype(np.float32)
    terminated, truncated = generator.random((2, *shape)) < ending / 2
    final_value = np.where(truncated, generator.normal(size=shape), 0).astype(np.float32)
    bootstrap = generator.normal(size=envs).astype(np.float32)
    arguments = (reward, value, terminated, truncated, final_value, bootstrap, gamma, lam)
    advantage = generalized_advantage(*arguments)
    assert advantage.dtype == np.float32
    np.testing.assert_allclose(advantage, reference(*arguments), rtol=1e-4, atol=1e-5)


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [(False, False, 1 + 0.5 * 8 - 2), (True, False, 1 - 2), (False, True, 1 + 0.5 * 6 - 2), (True, True, 1 - 2)],
)
def test_the_advantage_of_a_last_step_depends_on_how_its_episode_ended(terminated, truncated, expected):
    advantage = generalized_advantage(
        reward=column(1),
        value=column(2),
        terminated=column(terminated, dtype=bool),
        truncated=column(truncated, dtype=bool),
        final_value=column(6),
        bootstrap_value=np.array([8], np.float32),
        gamma=0.5,
        gae_lambda=0.9,
    )
    assert advantage.item() == expected


def test_no_reward_leaks_into_the_episode_before():
    common = {
        "value": column(1, 1, 1),
        "terminated": column(False, False, False, dtype=bool),
        "truncated": column(False, True, False, dtype=bool),
        "final_value": column(0, 3, 0),
        "bootstrap_value": np.array([1], np.float32),
        "gamma": 0.9,
        "gae_lambda": 0.9,
    }
    modest, rich = (generalized_advantage(reward=column(1, 1, r), **common) for r in (1, 1000))
    np.testing.assert_array_equal(modest[:2], rich[:2])
    assert rich[2] > modest[2]


def arrays(unroll):
    names = ("reward", "value", "terminated", "truncated", "final_value", "bootstrap_value")
    return [getattr(unroll, name).numpy() for name in names]


@given(unroll=unrolls(), gamma=st.sampled_from([0.0, 0.9, 1.0]), lam=st.sampled_from([0.0, 0.95, 1.0]))
def test_advantages_of_tensors_equal_their_definition(unroll, gamma, lam):
    expected = torch.from_numpy(reference(*arrays(unroll), gamma, lam))
    torch.testing.assert_close(gae(unroll, gamma, lam), expected)


@given(unroll=unrolls(), gamma=st.sampled_from([0.0, 0.9, 1.0]))
def test_with_lambda_one_an_advantage_is_the_return_minus_the_value(unroll, gamma):
    expected = n_step_return(unroll, gamma, len(unroll.reward)) - unroll.value
    torch.testing.assert_close(gae(unroll, gamma, 1.0), expected)


@given(unroll=unrolls(channels=(3,)))
def test_every_reward_channel_has_its_own_advantage(unroll):
    gammas = torch.tensor([0.9, 0.5, 1.0], dtype=torch.float64)
    together = gae(unroll, gammas, 0.9)
    for c, gamma in enumerate(gammas.tolist()):
        torch.testing.assert_close(together[..., c], gae(channel(unroll, c), gamma, 0.9))


@pytest.mark.parametrize("seed", range(3))
def test_the_gradients_of_advantages_are_right(seed):
    unroll, floats = detached(random_unroll(seed, steps=4))
    assert torch.autograd.gradcheck(
        lambda reward, value, final_value, bootstrap_value: gae(
            type(unroll)(reward, value, unroll.terminated, unroll.truncated, final_value, bootstrap_value), 0.9, 0.8
        ),
        floats,
    )
