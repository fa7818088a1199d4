import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.operators.advantages import generalized_advantage


def reference(reward, value, terminated, truncated, final_value, bootstrap_value, gamma, lam):
    """The definition, sum by sum: A_t = sum_k (gamma lambda)^k delta_{t+k} up to the end of t's episode."""
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
def test_the_end_of_an_episode_decides_what_the_last_step_is_worth(terminated, truncated, expected):
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


def test_nothing_of_the_next_episode_leaks_into_the_last():
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
