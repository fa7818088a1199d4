"""Privileged observations, for the value only: the policy neither needs nor sees them."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from agents import build_policy
from agents.algorithms.teacher import check_teacher
from agents.trees import spec_of
from warren.errors import ConfigurationError
from warren.trees import map_tree

STATE = Dict({"cards": Box(-1, 1, (3,), np.float32), "deck": Tuple([Discrete(4), Box(-1, 1, (2,), np.float32)])})
SPACE = Dict({**STATE.spaces, "image": Box(0, 255, (3, 16, 16), np.uint8)})
NETWORKS = {
    "mlp": {"hidden_sizes": [8]},
    "lstm": {"hidden_sizes": [8], "core": {"name": "lstm", "size": 8}},
    "transformer": {"hidden_sizes": [8], "core": {"name": "transformer", "size": 8, "memory": 4}},
    "impala_resnet": {"name": "impala_resnet", "channels": [4]},
    "normalized": {"hidden_sizes": [8], "normalize_observations": True, "normalize_values": True},
}
networks = pytest.mark.parametrize("name", NETWORKS)


def make(name="mlp", privileged=("deck",), space=SPACE):
    policy = build_policy({**NETWORKS[name], "privileged": list(privileged)}, space, Discrete(3), seed=1)
    if name == "normalized":
        policy.take_in(policy.leaves(drawn(8)), torch.randn(8, 1))
    return policy


def drawn(*leading, seed=0):
    """Return random observations of SPACE, [*leading, ...]."""
    random = np.random.default_rng(seed)
    return map_tree(lambda spec: random.integers(0, 4, leading + spec.shape).astype(spec.dtype), spec_of(SPACE))


def without(observation, *keys):
    return {key: part for key, part in observation.items() if key not in keys}


@networks
def test_the_policy_acts_the_same_without_privileged_observations(name):
    policy, observation = make(name), drawn(5)
    assert list(policy.observation_space) == ["cards", "image"] and policy.learning_space == SPACE
    memory = policy.initial_memory(5)
    whole = policy.step(observation, memory, "greedy")
    action, after = policy.act(without(observation, "deck"), memory, "greedy")
    acted = policy.step(without(observation, "deck"), memory, "greedy", value=False)
    np.testing.assert_array_equal(action, whole.action)
    np.testing.assert_array_equal(acted.action, whole.action)
    np.testing.assert_array_equal(acted.extras["log_prob"], whole.extras["log_prob"])
    for part in after:
        if part.startswith("policy."):
            torch.testing.assert_close(after[part], whole.memory[part])
    assert policy.probabilities_after(memory, without(observation, "deck"))[0].shape == (5, 3)


@networks
def test_only_gradients_of_the_value_reach_privileged_observations(name):
    policy = make(name)
    leaves = policy.leaves(drawn(4, 5))
    for leaf in leaves.values():
        if leaf.is_floating_point():
            leaf.requires_grad_()
    begins, action = torch.zeros(4, 5, dtype=torch.bool), torch.zeros(4, 5, dtype=torch.int64)
    said, _ = policy.unroll(leaves, policy.initial_memory(5), begins, action)
    said.log_prob.sum().backward(retain_graph=True)
    assert leaves["cards"].grad.abs().sum() > 0 and leaves["deck/1"].grad is None
    said.value.sum().backward()
    assert leaves["deck/1"].grad.abs().sum() > 0


@networks
def test_an_unroll_equals_the_same_single_steps(name):
    policy, observation = make(name), drawn(4, 5)
    begins, action = torch.zeros(4, 5, dtype=torch.bool), torch.zeros(4, 5, dtype=torch.int64)
    said, _ = policy.unroll(policy.leaves(observation), policy.initial_memory(5), begins, action)
    memory = policy.initial_memory(5)
    for step in range(4):
        here = map_tree(lambda part: part[step], observation)  # noqa: B023
        value = policy.value(here, memory)
        acted = policy.step(here, memory)
        memory = acted.memory
        np.testing.assert_allclose(value, acted.extras["value"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(said.value[step].detach(), value, rtol=1e-3, atol=1e-4)


def test_a_users_network_takes_privileged_observations():
    space = Dict({"seen": Box(-1, 1, (2,), np.float32), "hidden": Box(-1, 1, (3,), np.float32)})
    network = {"name": f"{__file__}:summed", "privileged": ["hidden"]}
    policy = build_policy(network, space, Discrete(2), seed=1)
    seen = {"seen": np.ones((4, 2), np.float32)}
    assert policy.act(seen)[0].shape == (4,)
    assert policy.value({**seen, "hidden": np.ones((4, 3), np.float32)}).tolist() == [5.0] * 4


def summed(settings, observation_space, heads, generator):
    """Return a network whose outputs are the sum of its observations."""
    from agents.networks import Network

    class Summed(Network):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def step(self, observation, memory):
            total = sum(leaf.flatten(1).sum(1, keepdim=True) for leaf in observation.values()) * self.weight
            return heads.outputs(total.expand(-1, heads.policy), total.expand(-1, heads.values)), memory

    return Summed()


def test_the_spec_of_trajectories_holds_and_names_privileged_observations():
    spec = make().spec()
    assert spec.privileged == ("deck",) and spec.observation == spec_of(SPACE)
    assert spec.last["observation"] == spec_of(SPACE)
    assert build_policy({}, SPACE, Discrete(3), 1).spec().privileged == ()


def test_an_empty_list_of_privileged_keys_changes_nothing():
    policy = build_policy({"privileged": []}, SPACE, Discrete(3), 1)
    assert policy.learning_space is policy.observation_space is SPACE
    assert list(policy.state_dict()) == list(build_policy({}, SPACE, Discrete(3), 1).state_dict())


@pytest.mark.parametrize(
    ("privileged", "space", "message"),
    [
        (["dek"], SPACE, "key in privileged of the network 'dek' does not exist; did you mean deck"),
        (["deck"], SPACE["cards"], "names keys of observations, and these are Box.*not a Dict"),
        (["cards", "deck", "image"], SPACE, "leaves the policy nothing to act by"),
        ("deck", SPACE, "setting 'privileged' of network must be a list"),
    ],
)
def test_invalid_privileged_keys_are_refused_with_the_reason(privileged, space, message):
    with pytest.raises(ConfigurationError, match=message):
        build_policy({"privileged": privileged}, space, Discrete(3), 1)


def test_a_shared_trunk_with_privileged_observations_is_refused():
    with pytest.raises(ConfigurationError, match="a trunk shared with the value would show the policy"):
        build_policy({"shared": True, "privileged": ["deck"]}, SPACE, Discrete(3), 1)


def test_a_teacher_may_act_by_privileged_observations_of_its_student():
    check_teacher("all-seeing", build_policy({}, SPACE, Discrete(3), 1), make())
