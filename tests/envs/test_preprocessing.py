"""Preprocessing of episodes, observations and rewards, its order, and environments unfit for it."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import envs
from envs import EnvSettings
from warren.errors import ConfigurationError

GAME = f"{__file__}:Game"


class Game(gymnasium.Env):
    """Images whose brightness is the number of steps; every fifth step costs a life; the last ends the game.

    `fades`: the brightness is 9 less the number of steps.
    """

    action_space, lives = Discrete(2), 0

    def __init__(self, colours: bool = True, lives: int = 2, fades: bool = False):
        self.observation_space = Box(0, 255, (6, 4, 3) if colours else (6, 4), np.uint8)
        self.all_lives, self.fades = lives, fades

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.lives = 0, self.all_lives
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        if self.steps % 5 == 0:
            self.lives -= 1
        return self.observe(), 3.0 if action else 0.0, self.lives == 0, False, {}

    def observe(self):
        return np.full(self.observation_space.shape, 9 - self.steps if self.fades else self.steps, np.uint8)


class Channels(gymnasium.Env):
    """Rewards of two numbers, by name or in order."""

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def __init__(self, named: bool = False):
        self.named, self.steps = named, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = {"damage": -2.0, "win": 1.0} if self.named else np.array([1.0, -2.0])
        return np.zeros(2, np.float32), reward, self.steps % 3 == 0, False, {}


def vector(copies: int = 1, env_id: str = GAME, **settings: Any) -> envs.VectorEnv:
    made = envs.make_vector(EnvSettings(env_id, **settings), copies, seed=1)
    made.reset()
    return made


def brightness(observation: np.ndarray) -> list[int]:
    return observation.reshape(*observation.shape[:2], -1)[0, :, 0].tolist()


@pytest.mark.parametrize(("fades", "brighter_of_two"), [(False, 3), (True, 7)])
def test_skipped_frames_sum_rewards_and_the_last_two_are_merged(fades: bool, brighter_of_two: int) -> None:
    games = vector(frame_skip=3, kwargs={"lives": 9, "fades": fades})
    observation, reward, *_ = games.step(np.array([1]))
    assert observation.shape == (1, 6, 4, 3)
    assert observation.max() == observation.min() == brighter_of_two
    assert reward.tolist() == [9.0]


def test_frames_are_greyed_before_stacking_and_the_newest_is_last() -> None:
    games = vector(grey=True, frame_stack=3, kwargs={"lives": 9})
    for _ in range(3):
        observation, *_ = games.step(np.array([0]))
    assert observation.shape == (1, 3, 6, 4) and observation.dtype == np.uint8
    grey = [int(steps * (0.2125 + 0.7154 + 0.0721)) for steps in (1, 2, 3)]
    assert brightness(observation) == grey


def test_images_are_resized() -> None:
    pytest.importorskip("cv2")
    assert vector(resize=8).single_observation_space.shape == (8, 8, 3)
    assert vector(resize=8, kwargs={"colours": False}, frame_stack=2).single_observation_space.shape == (2, 8, 8)


def test_an_episode_begins_with_a_random_number_of_noops() -> None:
    begun = envs.make_vector(EnvSettings(GAME, noop_start=3), 20, seed=1).reset()[0]
    assert set(begun[:, 0, 0, 0].tolist()) == {1, 2, 3}


def test_a_lost_life_ends_the_episode_and_the_whole_game_is_counted() -> None:
    games = vector(episodic_life=True, reward_clip=1.0)
    ends, rewards = [], 0.0
    for _ in range(9):  # the game has 10 steps, one of them made automatically after the first life
        observation, reward, terminated, truncated, info = games.step(np.array([1]))
        ends.append(bool(terminated[0]))
        rewards += reward[0]
        if len(ends) == 5:
            assert info["final_obs"][0].max() == 5
            assert observation.max() == 6, "the same game must continue, one step later"
        assert not truncated[0]
    assert ends == [False] * 4 + [True] + [False] * 3 + [True]
    assert observation.max() == 0, "a new game"
    assert rewards == 9
    assert games.pop_episodes().tolist() == [[27, 9]]


def test_rewards_are_scaled_then_clipped_and_returns_are_the_environments_own() -> None:
    games = vector(reward_scale=0.5, reward_clip=1.2, kwargs={"lives": 1})
    assert [float(games.step(np.array([action]))[1][0]) for action in (0, 1, 1, 0, 0)] == [0, 1.2, 1.2, 0, 0]
    assert games.pop_episodes().tolist() == [[6, 5]]
    by_library = vector(3, "CartPole-v1", reward_scale=0.1)
    np.testing.assert_allclose(by_library.step(np.zeros(3, np.int64))[1], 0.1)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("named", [False, True])
def test_reward_channels_are_reported_and_weighted(named: bool, workers: int) -> None:
    games = vector(
        2,
        f"{__file__}:Channels",
        kwargs={"named": named},
        reward_channels={"win": 1.0, "damage": 0.25},
        workers=workers,
    )
    for _ in range(3):
        _, reward, _, _, info = games.step(np.zeros(2, np.int64))
        assert reward.tolist() == [0.5, 0.5]
        assert info["reward_channels"].tolist() == [[1, -2], [1, -2]]
    assert games.pop_episodes().tolist() == [[1.5, 3, 3, -6]] * 2, "return, length, and the return of each channel"
    games.close()


@pytest.mark.parametrize(
    ("named", "channels", "words"),
    [
        (True, {"win": 1.0, "loss": 1.0}, "gave rewards named damage, win; env.reward_channels declares win, loss"),
        (False, {"win": 1.0}, "gave the reward array([ 1., -2.]); env.reward_channels declares win"),
        (False, {}, "it must be one number; several are declared: +env.reward_channels={NAME: COEFFICIENT, ...}"),
        (True, {}, "it must be one number; several are declared: +env.reward_channels={NAME: COEFFICIENT, ...}"),
    ],
)
def test_reward_channels_other_than_declared_are_named(named: bool, channels: dict[str, float], words: str) -> None:
    from envs.check import check

    with pytest.raises(ConfigurationError) as error:
        check(EnvSettings(f"{__file__}:Channels", {"named": named}, reward_channels=channels), two_player=False)
    assert words in str(error.value)


def test_all_unsuitable_preprocessing_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as error:
        envs.make(EnvSettings("CartPole-v1", preprocessing="atari"))
    for name, words in (
        ("frame_skip", "it takes images (uint8, 0 to 255"),
        ("grey", "the observations of 'CartPole-v1' are float32 [4]; leave it out"),
        ("resize", "it takes images"),
        ("noop_start", "has no action 0 that does nothing"),
        ("episodic_life", "does not say how many lives are left"),
    ):
        (line,) = [line for line in error.value.problems if line.startswith(f"env.{name}: ")]
        assert words in line
    assert len(error.value.problems) == 5


def test_only_arrays_are_stacked() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^env\.frame_stack: it takes observations that are a Box; .*Discrete"
    ):
        envs.make(EnvSettings("Taxi-v4", frame_stack=4))


def test_vectors_can_be_stacked() -> None:
    assert envs.make(EnvSettings("CartPole-v1", frame_stack=4)).observation_space.shape == (4, 4)


def test_a_given_setting_overrides_that_of_the_named_preprocessing() -> None:
    settings = EnvSettings("ALE/Pong-v5", preprocessing="atari", frame_stack=2, grey=False).resolved()
    assert (settings.frame_stack, settings.grey, settings.resize, settings.frame_skip) == (2, False, 84, 4)


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_pong_equals_that_of_gymnasiums_wrappers(env_id: str) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    pong = vector(2, env_id, preprocessing="atari")
    plain = gymnasium.make(env_id, frameskip=1)
    plain = gymnasium.wrappers.AtariPreprocessing(plain, noop_max=30, frame_skip=4)
    plain = gymnasium.wrappers.FrameStackObservation(plain, 4)
    observation, its = pong.reset(seed=7)[0], plain.reset(seed=7)[0]
    assert (observation.shape, observation.dtype) == ((2, 4, 84, 84), np.uint8)
    for action in (2, 3, 0, 2, 2, 5) * 4:
        np.testing.assert_array_equal(observation[0], its)
        observation, *_ = pong.step(np.array([action, 0]))
        its, *_ = plain.step(action)
    assert pong.single_action_space == Discrete(6)


def test_frames_are_not_skipped_twice() -> None:
    pytest.importorskip("ale_py")
    with pytest.raises(ConfigurationError, match=r"env\.frame_skip: .* \(frameskip=4\); leave out env\.kwargs"):
        envs.make(EnvSettings("ALE/Pong-v5", {"frameskip": 4}, frame_skip=4))


def test_without_the_emulator_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for name in [name for name in gymnasium.registry if name.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, name)
    with pytest.raises(
        ConfigurationError, match=r"Warren's extra `atari` \(ale_py is missing\).*pip install -e '\.\[atari\]'"
    ):
        envs.make("ALE/Pong-v5")


class Told(Game):
    """Images, and a text that no network reads."""

    def __init__(self):
        super().__init__()
        self.image = self.observation_space
        self.observation_space = gymnasium.spaces.Dict({"image": self.image, "mission": gymnasium.spaces.Text(9)})

    def observe(self):
        return {"image": np.full(self.image.shape, self.steps, np.uint8), "mission": "win"}


TOLD = f"{__file__}:Told"


def test_keys_of_an_observation_can_be_left_out():
    vector = envs.make_vector(EnvSettings(TOLD, leave_out=["mission"]), 2, seed=1)
    observation, _ = vector.reset()
    assert list(observation) == ["image"] and observation["image"].shape == (2, 6, 4, 3)
    _, _, _, _, info = vector.step(np.zeros(2, np.int64))
    assert list(envs.spaces(EnvSettings(TOLD, leave_out=["mission"]))[0]) == ["image"] and "final_obs" not in info


@pytest.mark.parametrize(
    ("env_id", "keys", "says"),
    [
        (TOLD, ["mision"], "env.leave_out: key 'mision' does not exist; did you mean mission"),
        (TOLD, ["image", "mission"], r"env.leave_out: \['image', 'mission'\] leaves nothing to observe"),
        (GAME, ["image"], "env.leave_out: it takes observations that are a Dict; those of .* are Box"),
    ],
)
def test_keys_that_cannot_be_left_out_are_refused(env_id: str, keys: list[str], says: str):
    with pytest.raises(ConfigurationError, match=says):
        envs.make(EnvSettings(env_id, leave_out=keys))
