import gymnasium
import numpy as np
import pytest

import envs
from envs.one_agent.legacy import LegacyEnv, convert_space
from warren.errors import ConfigurationError


class FourTuple:
    """An environment as before gym 0.26: a method `seed`, four values per step, `done` for both kinds of end."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.seeds = []

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        self.steps = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.steps += 1
        info = {"TimeLimit.truncated": True} if self.steps == 3 else {}
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 3 or action == 1, info


class Bare(FourTuple):
    """A class of neither gymnasium nor gym, with gymnasium's calls."""

    def reset(self, seed=None, options=None):
        super().reset()
        return np.zeros(1, np.float32), {"seed": seed, "options": options}

    def step(self, action):
        return np.ones(1, np.float32), 0.5, False, True, {"five": 5}


def test_done_within_a_time_limit_is_truncation_and_otherwise_termination():
    env = LegacyEnv(FourTuple())
    env.reset()
    assert env.step(0)[2:4] == (False, False)
    assert env.step(1)[2:4] == (True, False)
    assert env.step(0)[2:4] == (False, True)


def test_a_seed_goes_to_the_old_seed_method_and_only_when_given():
    old = FourTuple()
    env = LegacyEnv(old)
    observation, info = env.reset(seed=9)
    env.reset()
    assert old.seeds == [9]
    assert observation.shape == (1,)
    assert info == {}


def test_five_values_and_reset_arguments_pass_through():
    env = LegacyEnv(Bare())
    assert env.reset(seed=4, options={"level": 2})[1] == {"seed": 4, "options": {"level": 2}}
    assert env.step(0)[1:] == (0.5, False, True, {"five": 5})


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_ends_episodes_like_gymnasiums_wrapper(limit):
    class Five(Bare):
        def step(self, action):
            observation, reward, done, info = FourTuple.step(self, action)
            return observation, reward, done, False, info

    for kind in (FourTuple, Five):
        ours, gymnasiums = LegacyEnv(kind(), limit), gymnasium.wrappers.TimeLimit(LegacyEnv(kind()), limit)
        for actions in ([0, 0, 0], [0, 1], [1], [0, 0, 0]):
            ours.reset(seed=1)
            gymnasiums.reset(seed=1)
            for action in actions:
                assert ours.step(action) == gymnasiums.step(action)


def test_a_four_tuple_environment_passes_gymnasiums_checker_of_steps():
    env = gymnasium.wrappers.PassiveEnvChecker(LegacyEnv(FourTuple()))
    env.reset(seed=1)
    env.step(0)


def test_missing_spaces_and_methods_are_named():
    with pytest.raises(ConfigurationError, match="'object' has no observation_space, no action_space, no reset"):
        LegacyEnv(object())


def test_a_users_four_tuple_class_is_adapted():
    env = envs.make(f"{__file__}:FourTuple")
    env.reset(seed=1)
    assert len(env.step(0)) == 5


def test_spaces_of_old_gym_become_equal_spaces_of_gymnasium():
    envs.make("gym:CartPole-v1")  # imports gym as it must be imported on numpy 2
    from gym import spaces as old

    new = gymnasium.spaces
    box = old.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32))
    assert convert_space(box) == new.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32))
    assert convert_space(old.Discrete(3, start=-1)) == new.Discrete(3, start=-1)
    assert convert_space(old.MultiDiscrete([2, 3])) == new.MultiDiscrete([2, 3])
    assert convert_space(old.MultiBinary(4)) == new.MultiBinary(4)
    assert convert_space(old.Tuple((old.Discrete(2), box))) == new.Tuple((new.Discrete(2), convert_space(box)))
    assert convert_space(old.Dict(a=old.Discrete(2))) == new.Dict(a=new.Discrete(2))


def test_a_space_without_a_counterpart_is_named():
    with pytest.raises(ConfigurationError, match="space 'int'"):
        convert_space(3)
