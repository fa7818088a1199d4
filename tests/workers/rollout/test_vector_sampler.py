import re

import gymnasium
import numpy as np
import pytest
import torch

import envs
from agents import Trajectory, build_policy
from warren.errors import ConfigurationError
from warren.trees import leaves
from workers.rollout.vector_sampler import VectorSampler


class Counter(gymnasium.Env):
    """Observation: (episode, step). Reward: the step. Terminates at `end`; TimeLimit may truncate it before."""

    def __init__(self, end: int = 5):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.end, self.episode, self.count = end, -1, 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.count = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        return self.observe(), float(self.count), self.count == self.end, False, {}

    def observe(self):
        return np.array([self.episode, self.count], np.float64)


def short_counter(end: int = 5, limit: int = 3):
    """Return a counter that is truncated after `limit` steps, unless it terminates before."""
    return gymnasium.wrappers.TimeLimit(Counter(end), limit)


def make(env_id="CartPole-v1", num_envs=3, seed=1, network=None, **kwargs):
    vector_env = envs.make_vector(env_id, num_envs, seed, **kwargs)
    policy = build_policy(network or {}, vector_env.single_observation_space, vector_env.single_action_space, seed=1)
    return VectorSampler(vector_env, policy, seed), policy


def test_a_trajectory_is_valid_and_of_the_stated_size():
    sampler, policy = make()
    sampler.load(policy.state_dict(), 9)
    trajectory = Trajectory.from_dict(sampler.collect(20).to_dict())
    assert trajectory.observation.shape == (20, 3, 4)
    assert (trajectory.action.dtype, trajectory.action.shape) == (np.int64, (20, 3))
    assert trajectory.version.tolist() == [9] * 3
    assert sampler.env_steps == 60


def test_box_actions_are_kept_as_drawn_and_clipped_for_the_environment():
    sampler, _ = make("Pendulum-v1")
    trajectory = Trajectory.from_dict(
        sampler.collect(200).to_dict()
    )  # 600 draws of standard deviation 1 reach beyond +-2
    assert trajectory.action.shape == (200, 3, 1)
    assert np.abs(trajectory.action).max() > 2


def test_steps_are_recorded_in_order_and_continue_in_the_next_trajectory():
    sampler, _ = make(f"{__file__}:Counter", num_envs=2, end=5)
    first, second = sampler.collect(7), sampler.collect(4)
    assert first.observation.dtype == np.float32
    steps = np.concatenate([first.observation, second.observation])[:, 0].astype(int).tolist()
    assert steps == [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [1, 0], [1, 1], [1, 2], [1, 3], [1, 4], [2, 0]]
    assert first.reward[:, 1].tolist() == [1, 2, 3, 4, 5, 1, 2]
    assert first.terminated[:, 0].tolist() == [False] * 4 + [True] + [False] * 2
    assert not first.truncated.any()
    assert first.episodes.tolist() == [[15, 5], [15, 5]]
    assert second.episodes.tolist() == [[15, 5], [15, 5]]


def test_a_truncated_episode_keeps_the_value_of_its_last_observation_not_of_the_next():
    sampler, policy = make(f"{__file__}:short_counter", num_envs=1)
    trajectory = sampler.collect(6)
    assert trajectory.truncated[:, 0].tolist() == [False, False, True] * 2
    expected = policy.value(np.array([[0, 3], [1, 3]], np.float32))
    np.testing.assert_allclose(trajectory.cut["value"][[2, 5], 0], expected, rtol=1e-6, atol=2e-7)
    assert not trajectory.cut["value"][[0, 1, 3, 4]].any()


def test_an_episode_that_ends_as_its_time_runs_out_is_worth_nothing_more():
    sampler, _ = make(f"{__file__}:short_counter", num_envs=1, end=3, limit=3)
    trajectory = sampler.collect(3)
    assert trajectory.terminated[2, 0] and trajectory.truncated[2, 0]
    assert not trajectory.cut["value"].any()


@pytest.mark.parametrize("network", [{}, {"shared": True}], ids=["separate trunks", "one trunk"])
def test_values_and_log_probabilities_are_those_of_the_recorded_pairs(network):
    sampler, policy = make(max_episode_steps=15, network=network)
    assert policy.network.separate_value == (not network)
    trajectory = sampler.collect(40)
    observation = torch.from_numpy(trajectory.observation.reshape(-1, 4))
    log_prob, _, value, _ = policy.evaluate(observation, torch.from_numpy(trajectory.action.ravel()))
    np.testing.assert_allclose(trajectory.extras["log_prob"].ravel(), log_prob.detach().numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trajectory.extras["value"].ravel(), value.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_the_last_value_is_of_the_observation_that_the_next_trajectory_begins_with():
    sampler, policy = make()
    bootstrap = sampler.collect(5).last["value"]
    np.testing.assert_allclose(bootstrap, policy.value(sampler.collect(5).observation[0]), rtol=1e-6, atol=2e-7)


def test_a_trajectory_does_not_change_when_the_next_is_collected():
    sampler, _ = make()
    trajectory = sampler.collect(10)
    before = {name: np.copy(value) for name, value in trajectory.to_dict().items()}
    sampler.collect(10)
    for name, value in before.items():
        np.testing.assert_array_equal(trajectory.to_dict()[name], value)


@pytest.mark.parametrize("other", [{"seed": 2}, None])
def test_the_same_seed_repeats_a_trajectory(other):
    trajectories = []
    for arguments in ({"seed": 1}, other or {"seed": 1}):
        sampler, _ = make(**arguments)
        trajectories.append(sampler.collect(50).to_dict())
    first, second = (dict(leaves(trajectory)) for trajectory in trajectories)
    assert all(np.array_equal(first[name], second[name]) for name in first) == (other is None)


def test_new_weights_act_at_once():
    sampler, policy = make()
    with torch.no_grad():
        policy.network.policy_trunk.layers[2].bias.copy_(torch.tensor([-50.0, 50.0]))
    assert (sampler.collect(10).action == 1).all()


class Failing(Counter):
    """A counter that fails at its third step as `how` says."""

    def __init__(self, how: str):
        super().__init__(end=100)
        self.how = how

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.count == 3:
            match self.how:
                case "raises":
                    raise KeyError("the board is gone")
                case "nan observation":
                    observation[1] = np.nan
                case "nan reward":
                    reward = float("inf")
                case "shape":
                    observation = np.zeros(3)
                case "rewards":
                    reward = np.ones(1)
                case "ends":
                    rest[0] = np.array([False, True])
                case "four values":
                    return observation, reward, False, {}
                case "no info":
                    return observation, reward, True, False, None
                case "wide reset":
                    self.reset = lambda **given: (observation, 0.0, {})
                    rest[0] = True
        return observation, reward, *rest


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", ["step() failed at ", "test_vector_sampler.py:", "KeyError: 'the board is gone'"]),
        ("nan observation", ["step() gave nan at [1] of its observation, which has shape [2]; all numbers must be"]),
        ("nan reward", ["step() gave inf as reward; all numbers must be finite"]),
        ("shape", ["step() gave an observation of shape [3]; its observation_space has [2]"]),
        ("rewards", ["step() gave the reward array([1.]); it must be one number", "(copy 0 of 2)"]),
        ("ends", ["step() gave terminated=array([False,  True]); it must be True or False", "(copy 0 of 2)"]),
        ("four values", ["step() gave 4 values; it must give 5: observation, reward, ", "(copy 0 of 2)"]),
        ("no info", ["step() gave the info None, which must be a dict", "(copy 0 of 2)"]),
        ("wide reset", ["step() began an episode by a reset() that gave 3 values; it must give 2: ", "(copy 0 of 2)"]),
    ],
)
def test_an_error_of_the_users_environment_is_one_sentence_that_names_it(how, words):
    vector_env = envs.make_vector(f"{__file__}:Failing", 2, 1, how=how)
    policy = build_policy({}, vector_env.single_observation_space, vector_env.single_action_space, seed=1)
    sampler = VectorSampler(vector_env, policy, 1, name="game.py:Failing")
    with pytest.raises(ConfigurationError) as error:
        sampler.collect(8)
    for word in ("environment 'game.py:Failing': ", *words):
        assert word in str(error.value)
    assert "\n" not in str(error.value)


class Leaving(gymnasium.Env):
    """Its third observation is not in its space."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, space: str):
        self.observation_space = SPACES[space]
        self.count = 0

    def reset(self, *, seed=None, options=None):
        return self.seen(), {}

    def step(self, action):
        self.count += 1
        return self.seen(), 0.0, False, False, {}

    def seen(self):
        third = self.count == 3
        match self.observation_space:
            case gymnasium.spaces.Dict():
                return {"eye": np.zeros(1 + third, np.float32), "hand": 0}
            case gymnasium.spaces.Discrete():
                return 4 if third else 3
        return np.array([2, 3 + third])


SPACES = {
    "one": gymnasium.spaces.Discrete(4),
    "two": gymnasium.spaces.MultiDiscrete([3, 4]),
    "parts": gymnasium.spaces.Dict({"eye": gymnasium.spaces.Box(0, 1, (1,)), "hand": gymnasium.spaces.Discrete(2)}),
}


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("one", "step() left its observation_space: observation holds 4 at [3, 0]; it must be within 0 and 3"),
        ("two", "step() left its observation_space: observation holds 4 at [3, 0, 1]; it must be within 0 and 3"),
        ("parts", ": 'eye' has shape [2] in place of [1] (copy 0 of 2)"),
    ],
)
def test_an_observation_that_leaves_its_space_is_one_error(space, said):
    vector_env = envs.make_vector(f"{__file__}:Leaving", 2, 1, space=space)
    policy = build_policy({}, vector_env.single_observation_space, vector_env.single_action_space, seed=1)
    with pytest.raises(ConfigurationError, match="^environment 'game.py:Leaving': .*" + re.escape(said)):
        VectorSampler(vector_env, policy, 1, name="game.py:Leaving").collect(8)
