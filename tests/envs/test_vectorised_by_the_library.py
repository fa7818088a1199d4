"""Every vectorised form of gymnasium's in use equals the plain environments, from the same seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs import EnvSettings
from envs.vector import classic_control, library
from envs.vector.sync import SyncVectorEnv as OneAfterAnother
from warren.errors import ConfigurationError

COPIES = 7
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "CartPole-v0": [{}],
    "CartPole-v1": [{}, {"max_episode_steps": 15}, {"sutton_barto_reward": True, "max_episode_steps": None}],
}


def at_random(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return generator.integers(0, 2, len(observation))


def balancing(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Balance the pole up to the time limit; some copies slip now and then."""
    upright = (observation[:, 2] + 0.3 * observation[:, 3] + 0.05 * observation[:, 1] > 0).astype(np.int64)
    slips = generator.random(len(observation)) < np.linspace(0, 0.4, len(observation))
    return np.where(slips, 1 - upright, upright)


def test_each_entry_of_the_table_is_compared_with_its_plain_form() -> None:
    assert set(VARIANTS) == set(library.SAME_DYNAMICS)


def test_each_vectorised_environment_is_compared_or_left_out_for_a_reason() -> None:
    vectorised = {
        name
        for name, spec in gymnasium.registry.items()
        if spec.vector_entry_point is not None and not name.startswith("ALE/")
    }
    assert vectorised <= {*library.SAME_DYNAMICS, *library.NOT_THE_SAME}


@pytest.mark.parametrize("play", [at_random, balancing])
@pytest.mark.parametrize(("env_id", "kwargs"), [(name, each) for name in VARIANTS for each in VARIANTS[name]])
def test_the_librarys_vector_equals_the_plain_environments(
    env_id: str, kwargs: dict[str, Any], play: Callable[[np.ndarray, np.random.Generator], np.ndarray]
) -> None:
    ours = envs.make_vector(EnvSettings(env_id, kwargs, vectorization="library"), COPIES, seed=3)
    plain = SyncVectorEnv([lambda: gymnasium.make(env_id, **kwargs)] * COPIES, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.single_observation_space == plain.single_observation_space
    assert ours.single_action_space == plain.single_action_space
    generator = np.random.default_rng(0)
    terminated = truncated = 0
    for seed, steps in ((3, 550), (None, 60), ([5] * COPIES, 60)):  # None: each copy's generator continues
        observation, _ = ours.reset(seed=None if seed == 3 else seed)
        np.testing.assert_array_equal(observation, plain.reset(seed=seed)[0])
        for _ in range(steps):
            action = play(observation, generator)
            observation, *mine, info = ours.step(action)
            its_observation, *its, its_info = plain.step(action)
            assert [array.dtype for array in (observation, *mine)] == [array.dtype for array in (its_observation, *its)]
            np.testing.assert_allclose(observation, its_observation, rtol=1e-5, atol=1e-7)
            for left, right in zip(mine, its, strict=True):
                np.testing.assert_array_equal(left, right)
            ended = np.flatnonzero(mine[1] | mine[2])
            assert ("final_obs" in info) == (len(ended) > 0)
            for i in ended:
                np.testing.assert_allclose(info["final_obs"][i], its_info["final_obs"][i], rtol=1e-5, atol=1e-7)
            terminated += int(mine[1].sum())
            truncated += int(mine[2].sum())
    assert terminated > 10
    assert truncated > 0 or (play is at_random and not kwargs.get("max_episode_steps"))
    ours.close()


def test_the_librarys_vector_is_used_only_where_it_plays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_control.COMPILED, "_found", (None, "no compiler"))

    def chosen(**settings: Any) -> type:
        return type(envs.make_vector(EnvSettings(**settings), 2, seed=0))

    assert chosen(id="CartPole-v1") is chosen(id="gymnasium:CartPole-v1") is library.LibraryCartPole
    assert chosen(id="CartPole-v1", vectorization="sync") is OneAfterAnother
    assert chosen(id="CartPole-v1", kwargs={"render_mode": "rgb_array"}) is OneAfterAnother
    assert chosen(id="CartPole-v1", kwargs={"max_episode_steps": -1}) is OneAfterAnother  # -1: no limit
    assert chosen(id="Acrobot-v1") is chosen(id="gym:CartPole-v1") is OneAfterAnother


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"id": "Acrobot-v1"}, "'Acrobot-v1' has none that is known to play the same; those that have: CartPole-v0, "),
        ({"id": "CartPole-v1", "kwargs": {"render_mode": "rgb_array"}}, "does not take env.kwargs render_mode"),
        ({"id": "CartPole-v1", "kwargs": {"max_episode_steps": -1}}, "takes no max_episode_steps=-1"),
    ],
)
def test_library_vectorization_that_does_not_fit_is_refused_with_the_reason(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"env\.vectorization=library: .*use env\.vectorization=auto") as error:
        envs.make_vector(EnvSettings(**settings, vectorization="library"), 2, seed=0)
    assert words in str(error.value)


def test_an_unknown_vectorization_is_refused_with_near_names() -> None:
    with pytest.raises(ConfigurationError, match=r"env\.vectorization: .*'libary'.*did you mean library\?"):
        envs.make_vector(EnvSettings("CartPole-v1", vectorization="libary"), 2, seed=0)
