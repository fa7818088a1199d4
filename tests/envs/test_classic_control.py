"""Classic control in C equals gymnasium's, step by step from the same seeds."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs import EnvSettings
from envs.vector import classic_control
from envs.vector.classic_control import GAMES, STARTS, ClassicControl
from envs.vector.library import LibraryCartPole
from envs.vector.sync import SyncVectorEnv as OneAfterAnother
from warren.errors import ConfigurationError

COPIES, STEPS = 50, 2000  # 100,000 steps of each game
CHAOTIC = {"Acrobot-v1"}  # rounding differences grow: gymnasium's form continues from our state
OPTIONS = {
    "CartPole-v0": {"sutton_barto_reward": True},
    "CartPole-v1": {"max_episode_steps": 15},
    "Acrobot-v1": {"max_episode_steps": 40},
    "MountainCar-v0": {"goal_velocity": 0.02, "max_episode_steps": None},
    "MountainCarContinuous-v0": {"goal_velocity": 0.01, "max_episode_steps": 150},
    "Pendulum-v1": {"g": 9.81},
}

pytestmark = pytest.mark.skipif(classic_control.COMPILED.lacking() is not None, reason="no C compiler")


def both(name, kwargs, copies, seed):
    ours = envs.make_vector(EnvSettings(name, kwargs, vectorization="native"), copies, seed=seed)
    make = partial(gymnasium.make, name, disable_env_checker=True, **kwargs)
    plain = SyncVectorEnv([make] * copies, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.single_observation_space == plain.single_observation_space
    assert ours.single_action_space == plain.single_action_space
    return ours, plain


def wide(space, copies, generator):
    """Draw actions, a third of the continuous ones out of bounds."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return generator.integers(0, space.n, copies)
    return generator.uniform(1.5 * space.low, 1.5 * space.high, (copies, *space.shape)).astype(np.float32)


def compare(ours, plain, steps, generator, chaotic):
    """Return how many episodes ended."""
    ended = 0
    for _ in range(steps):
        action = wide(ours.single_action_space, ours.num_envs, generator)
        observation, *mine, info = ours.step(action)
        its_observation, *its, its_info = plain.step(action)
        assert [array.dtype for array in (observation, *mine)] == [array.dtype for array in (its_observation, *its)]
        np.testing.assert_allclose(observation, its_observation, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(mine[0], its[0], rtol=1e-6, atol=1e-8)
        np.testing.assert_array_equal(mine[1:], its[1:])
        over = np.flatnonzero(mine[1] | mine[2])
        assert ("final_obs" in info) == (len(over) > 0)
        for i in over:
            np.testing.assert_allclose(info["final_obs"][i], its_info["final_obs"][i], rtol=1e-5, atol=2e-6)
        ended += len(over)
        if chaotic:
            for copy, state in zip(plain.envs, ours._state, strict=True):
                copy.unwrapped.state = state.copy()
    return ended


@pytest.mark.parametrize("name", sorted({*GAMES} - {"CartPole-v0"}))  # CartPole-v0 has CartPole-v1's equations
def test_a_hundred_thousand_random_steps_equal_gymnasiums(name):
    ours, plain = both(name, {}, COPIES, 3)
    np.testing.assert_array_equal(ours.reset()[0], plain.reset(seed=3)[0])
    ended = compare(ours, plain, STEPS, np.random.default_rng(0), name in CHAOTIC)
    assert ended >= COPIES
    assert len(ours.pop_episodes()) == ended


@pytest.mark.parametrize("name", GAMES)
def test_options_and_later_resets_equal_gymnasiums(name):
    ours, plain = both(name, OPTIONS[name], 5, 7)
    generator = np.random.default_rng(1)
    for seed in (7, None, [4] * 5):  # None: each copy's generator continues
        np.testing.assert_array_equal(ours.reset(seed=None if seed == 7 else seed)[0], plain.reset(seed=seed)[0])
        compare(ours, plain, 160, generator, name in CHAOTIC)


def test_starts_continue_past_those_drawn_in_advance():
    ours, plain = both("CartPole-v1", {"max_episode_steps": 1}, 2, 0)
    ours.reset(), plain.reset(seed=0)
    for _ in range(2 * STARTS + 3):
        action = np.zeros(2, np.int64)
        np.testing.assert_array_equal(ours.step(action)[0], plain.step(action)[0])


def test_a_balanced_pole_is_truncated_at_the_limit():
    ours = envs.make_vector(EnvSettings("CartPole-v1", vectorization="native"), 3, seed=0)
    observation, _ = ours.reset()
    for step in range(1, 501):  # gymnasium's would differ: over so many steps the rounding of a sine changes the game
        action = (observation[:, 2] + 0.3 * observation[:, 3] + 0.05 * observation[:, 1] > 0).astype(np.int64)
        observation, _, terminated, truncated, _ = ours.step(action)
        assert not terminated.any()
        assert truncated.all() == (step == 500)
    np.testing.assert_array_equal(ours.pop_episodes(), [[500, 500]] * 3)


@pytest.mark.parametrize(("name", "action"), [("CartPole-v1", 2), ("Acrobot-v1", -1), ("MountainCar-v0", 3)])
def test_an_action_out_of_range_is_refused_and_nothing_moves(name, action):
    vector = envs.make_vector(EnvSettings(name, vectorization="native"), 3, seed=0)
    vector.reset()
    before = vector._state.copy()
    with pytest.raises(ValueError, match=rf"action {action} of copy 1 is not in Discrete"):
        vector.step(np.array([0, action, 0]))
    with pytest.raises(ValueError, match="2 actions for 3 environments"):
        vector.step(np.zeros(2, np.int64))
    np.testing.assert_array_equal(vector._state, before)


def test_c_is_used_with_a_compiler_unless_settings_require_otherwise(monkeypatch):
    def chosen(name, **settings):
        return type(envs.make_vector(EnvSettings(name, **settings), 2, seed=0))

    for name in GAMES:
        assert chosen(name) is chosen(f"gymnasium:{name}") is ClassicControl
        assert chosen(name, vectorization="sync") is OneAfterAnother
        assert chosen(name, kwargs={"render_mode": "rgb_array"}) is OneAfterAnother
        assert chosen(name, kwargs={"max_episode_steps": -1}) is OneAfterAnother
        assert chosen(name, reward_clip=1.0) is ClassicControl  # it clips only the rewards that are learned from
    assert chosen("Taxi-v4") is OneAfterAnother
    monkeypatch.setattr(classic_control.COMPILED, "_found", (None, "no C compiler was found (cc)"))
    assert chosen("CartPole-v1") is LibraryCartPole
    assert chosen("Pendulum-v1") is OneAfterAnother
    with pytest.raises(ConfigurationError, match=r"vectorization=native: no C compiler was found \(cc\); use env\.vec"):
        chosen("Pendulum-v1", vectorization="native")


def test_a_game_that_the_user_registers_again_is_not_played_in_c(monkeypatch):
    assert classic_control.unfit(EnvSettings("Pendulum-v1")) is None
    own = gymnasium.envs.registration.EnvSpec("Pendulum-v1", entry_point="my.games:Pendulum")
    monkeypatch.setitem(gymnasium.registry, "Pendulum-v1", own)
    assert "is registered as another than gymnasium's" in str(classic_control.unfit(EnvSettings("Pendulum-v1")))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"id": "Taxi-v4"}, "'Taxi-v4' is not one of those that are written in C: Acrobot-v1, "),
        ({"id": "Pendulum-v1", "kwargs": {"mass": 2.0}}, "that of 'Pendulum-v1' does not take env.kwargs mass"),
        ({"id": "CartPole-v1", "kwargs": {"max_episode_steps": -1}}, "takes no max_episode_steps=-1"),
        ({"id": "CartPole-v1", "frame_stack": 2}, "takes no settings of its observations and episodes"),
    ],
)
def test_native_vectorization_that_does_not_fit_is_refused_with_the_reason(settings, words):
    with pytest.raises(ConfigurationError, match=r"env\.vectorization=native: .*use env\.vectorization=auto") as error:
        envs.make_vector(EnvSettings(**settings, vectorization="native"), 2, seed=0)
    assert words in str(error.value)
