import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs.checking import one_agent
from envs.checking.report import Report


def test_a_vector_steps_like_gymnasiums_vector():
    ours = envs.make_vector("CartPole-v1", 3, seed=7, max_episode_steps=30)
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1", max_episode_steps=30)] * 3, autoreset_mode=AutoresetMode.SAME_STEP
    )
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset(seed=7)[0])
    generator, ends = np.random.default_rng(0), 0
    for _ in range(200):
        action = generator.integers(0, 2, 3)
        mine, its = ours.step(action), theirs.step(action)
        for left, right in zip(mine[:4], its[:4], strict=True):
            np.testing.assert_array_equal(left, right)
        for i in np.flatnonzero(mine[2] | mine[3]):
            np.testing.assert_array_equal(mine[4]["final_obs"][i], its[4]["final_obs"][i])
            ends += 1
    assert ends > 10


def test_copies_differ_and_the_seed_repeats_them():
    first, second, other = (envs.make_vector("CartPole-v1", 2, seed=s).reset()[0] for s in (1, 1, 50))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, other)


def test_only_the_first_reset_is_seeded():
    env = envs.make_vector("CartPole-v1", 1, seed=1)
    assert not np.array_equal(env.reset()[0], env.reset()[0])


def test_the_last_observation_of_an_episode_is_kept_when_time_runs_out():
    env = envs.make_vector("CartPole-v1", 1, seed=1, max_episode_steps=3)
    env.reset()
    for _ in range(2):
        env.step(np.array([0]))
    observation, _, terminated, truncated, info = env.step(np.array([1]))
    assert truncated[0] and not terminated[0]
    assert np.abs(observation[0]).max() <= 0.05  # the next episode's first observation, near upright
    assert not np.array_equal(info["final_obs"][0], observation[0])


def test_finished_episodes_are_reported_once_with_return_and_length():
    env = envs.make_vector("CartPole-v1", 2, seed=3, max_episode_steps=5)
    env.reset()
    for step in range(1, 13):
        env.step(np.array([step % 2, step % 2]))
        if step == 4:
            assert env.pop_episodes().shape == (0, 2)
    episodes = env.pop_episodes()
    assert episodes.dtype == np.float32
    np.testing.assert_array_equal(episodes, [[5, 5]] * 4)
    assert env.pop_episodes().shape == (0, 2)


def test_a_reset_forgets_the_unfinished_episode():
    env = envs.make_vector("CartPole-v1", 1, seed=3, max_episode_steps=5)
    for _ in range(2):
        env.reset()
        for step in range(3):
            env.step(np.array([step % 2]))
    for step in range(2):
        env.step(np.array([step % 2]))
    np.testing.assert_array_equal(env.pop_episodes(), [[5, 5]])


class Told(gymnasium.Env):
    """An environment with infos at some steps and Dict observations, written into the same array."""

    observation_space = gymnasium.spaces.Dict(
        {"board": gymnasium.spaces.Box(0, 99, (2,), np.float32), "turn": gymnasium.spaces.Discrete(9)}
    )
    action_space = gymnasium.spaces.MultiDiscrete([3, 3])

    def __init__(self):
        self.board = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.end = 0, int(self.np_random.integers(2, 8))
        self.board[:] = 50
        return {"board": self.board, "turn": 0}, {"begun": True}

    def step(self, action):
        self.steps += 1
        self.board[:] = self.steps, action.sum()
        info = {"left": self.end - self.steps} if action[0] else {}
        return {"board": self.board, "turn": self.steps}, 0.5, self.steps == self.end, False, info


def test_observations_and_infos_equal_those_of_gymnasiums_vector():
    ours = envs.make_vector(f"{__file__}:Told", 3, seed=7)
    theirs = SyncVectorEnv([Told] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    generator = np.random.default_rng(0)
    mine, its = ours.reset(), theirs.reset(seed=7)
    for _ in range(40):
        action = generator.integers(0, 3, (3, 2))
        assert mine[0].keys() == its[0].keys()
        for name in its[0]:
            np.testing.assert_array_equal(mine[0][name], its[0][name])
        for name in set(its[-1]) - {"final_obs"}:
            np.testing.assert_equal(mine[-1][name], its[-1][name])
        mine, its = ours.step(action), theirs.step(action)
        for i in np.flatnonzero(mine[2]):
            last = mine[4]["final_obs"][i]
            assert last["turn"] > 1
            assert last["board"].tolist() == [last["turn"], action[i].sum()], "the next episode must not overwrite it"


def test_infos_are_left_out_if_merges_infos_is_false():
    told, quiet = (envs.make_vector(f"{__file__}:Told", 3, seed=7) for _ in range(2))
    quiet.merges_infos = False
    told.reset(), quiet.reset()
    said: set[str] = set()
    for _ in range(20):
        action = np.ones((3, 2), np.int64)
        full, least = told.step(action), quiet.step(action)
        np.testing.assert_array_equal(full[0]["turn"], least[0]["turn"])
        assert ("final_obs" in full[4]) == ("final_obs" in least[4])
        said |= set(least[4])
    assert said == {"final_obs", "_final_obs"}


class TellsApart(gymnasium.Env):
    """Its infos differ in shape and type from episode to episode, so that no vector can merge them."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.path = np.arange(self.np_random.integers(1, 9))
        return np.zeros(2, np.float32), self.told()

    def step(self, action):
        return np.zeros(2, np.float32), 1, True, False, self.told()

    def told(self):
        return {"path": self.path, "best": None if len(self.path) % 2 else len(self.path)}


def test_infos_that_cannot_be_merged_stop_no_sampler():
    quiet = envs.make_vector(f"{__file__}:TellsApart", 3, seed=7)
    quiet.merges_infos = False
    assert quiet.reset()[1] == {}
    assert set(quiet.step(np.ones(3, np.int64))[4]) == {"final_obs", "_final_obs"}
    report = Report()
    one_agent.check(report, envs.EnvSettings(f"{__file__}:TellsApart"), 8)
    assert report.problems == []


def test_seeds_can_be_given_per_copy():
    env = envs.make_vector("CartPole-v1", 3, seed=1)
    both = [env.reset(seed=[4, 9, 4])[0], env.reset(seed=4)[0]]
    np.testing.assert_array_equal(both[0][0], both[0][2])
    np.testing.assert_array_equal(both[0][0], both[1][0])
