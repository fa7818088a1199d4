"""SAC, TD3 and DDPG: updates against plain implementations, published weights, exploration, refused settings."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from support.drawn_batches import drawn_batch
from support.plain_off_policy import PlainSAC, PlainTD3, flat, layers_of

from agents import build_algorithm, build_policy
from warren.errors import ConfigurationError

SEEN, MOVES, CHOICES = Box(-3, 3, (4,), np.float32), Box(-2, 2, (2,), np.float32), Discrete(3)
BOXES = {
    "sac": {"squashed": True, "state_std": True},
    "td3": {"deterministic": True},
    "ddpg": {"deterministic": True},
}
COMMON = {"learning_rate": 0.01, "adam_epsilon": 1e-3, "gamma": 0.9, "target_rate": 0.1}
CASES = [("sac", MOVES), ("sac", CHOICES), ("td3", MOVES), ("ddpg", MOVES)]
IDS = ["sac", "discrete sac", "td3", "ddpg"]


def made(name, space=MOVES, seed=1, network=None, **settings):
    network = {"hidden_sizes": [16], "policy_gain": 1.0, "value": False, "box_actions": BOXES[name], **(network or {})}
    policy = build_policy(network, SEEN, space, seed)
    return build_algorithm(name, {**COMMON, "critic": {"hidden_sizes": [16]}, **settings}, policy, seed)


def assert_equal_layers(ours, theirs):
    for tensor, expected in zip(flat(ours), flat(theirs), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [MOVES, CHOICES], ids=["box", "discrete"])
def test_updates_of_sac_equal_a_plain_implementation(space):
    discrete = isinstance(space, Discrete)
    algorithm = made("sac", space, temperature=0.5, n_steps=2)
    entropy = 0.89 * np.log(3) if discrete else -2.0
    plain = PlainSAC(
        algorithm.policy.state_dict(), algorithm.critics.state_dict(), gamma=0.9, rate=0.01, epsilon=1e-3, tau=0.1,
        temperature=0.5, target_entropy=entropy, actions=3 if discrete else 0,
    )  # fmt: skip
    drawn = torch.Generator().manual_seed(1)
    for update in range(3):
        batch = drawn_batch(algorithm.policy, length=2, seed=update, weighted=True)
        noises = tuple(torch.empty(12, 2).normal_(generator=drawn).double() for _ in range(2))
        found = algorithm.update(batch)
        errors = plain.update(batch[0], batch.weights, noises)
        np.testing.assert_allclose(found.priorities, errors, rtol=1e-4, atol=1e-5)
    assert algorithm.temperature == pytest.approx(np.exp(plain.log_alpha.item()), rel=1e-5) != 0.5
    assert_equal_layers(layers_of(algorithm.policy.state_dict(), "network.policy_trunk.layers"), plain.policy)
    for module, networks in ((algorithm.critics, plain.critics.networks), (algorithm.targets, plain.critics.targets)):
        for index, layers in enumerate(networks):
            assert_equal_layers(layers_of(module.state_dict(), f"networks.{index}.policy_trunk.layers"), layers)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_policy_and_critics_have_rates_of_their_own_by_their_names(name):
    algorithm = made(name, critics=2, policy_every=1) if name == "td3" else made(name)
    before = {key: part.clone() for key, part in algorithm.critics.state_dict().items()}
    apart = made(
        name, learning_rates={"network.": 0.0, "networks.1": 0.5}, **({"policy_every": 1} if name == "td3" else {})
    )
    kept = {key: part.clone() for key, part in apart.policy.state_dict().items()}
    for one in (algorithm, apart):
        one.update(drawn_batch(one.policy, length=1, seed=1))
    assert all(torch.equal(part, kept[key]) for key, part in apart.policy.state_dict().items())
    for key, part in apart.critics.state_dict().items():
        step = algorithm.critics.state_dict()[key] - before[key]
        torch.testing.assert_close(part - before[key], step * (0.5 if key.startswith("networks.1") else 1.0))
    with pytest.raises(ConfigurationError, match="no parameter's name begins with 'critics'; there are network"):
        made(name, learning_rates={"critics": 0.5})


@pytest.mark.parametrize("name", ["td3", "ddpg"])
def test_updates_of_td3_and_ddpg_equal_a_plain_implementation(name):
    algorithm, smoothed = made(name), name == "td3"
    plain = PlainTD3(
        algorithm.policy.state_dict(), algorithm.critics.state_dict(), count=2 if smoothed else 1, gamma=0.9, rate=0.01,
        epsilon=1e-3, tau=0.1, every=2 if smoothed else 1, clip=0.5,
    )  # fmt: skip
    drawn = torch.Generator().manual_seed(1)
    for update in range(4):
        batch = drawn_batch(algorithm.policy, length=1, seed=update)
        noise = torch.zeros(12, 2)
        if smoothed:
            noise.normal_(0, 0.2, generator=drawn)
        found = algorithm.update(batch)
        np.testing.assert_allclose(found.priorities, plain.update(batch[0], noise.double()), rtol=1e-4, atol=1e-5)
    pairs = [(algorithm.policy, plain.policy), (algorithm.target_policy, plain.target)]
    for module, layers in pairs:
        assert_equal_layers(layers_of(module.state_dict(), "network.policy_trunk.layers"), layers)
    for module, networks in ((algorithm.critics, plain.critics.networks), (algorithm.targets, plain.critics.targets)):
        for index, layers in enumerate(networks):
            assert_equal_layers(layers_of(module.state_dict(), f"networks.{index}.policy_trunk.layers"), layers)


@pytest.mark.parametrize(("name", "space"), CASES, ids=IDS)
def test_an_actor_and_its_critics_resume_exactly_from_their_state(name, space):
    one, other = made(name, space, 1), made(name, space, 2)
    for seed in range(3):
        one.update(drawn_batch(one.policy, length=1, seed=seed))
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    for seed in (3, 4):
        batch = drawn_batch(one.policy, length=1, seed=seed)
        first, second = one.update(batch), other.update(batch)
        np.testing.assert_array_equal(first.priorities, second.priorities)
    assert all(torch.equal(a, b) for a, b in zip(one.policy.parameters(), other.policy.parameters(), strict=True))
    assert all(np.isfinite(value) for value in first.metrics.values())


@pytest.mark.parametrize(("name", "space"), CASES, ids=IDS)
def test_critics_stay_with_the_learner(name, space):
    algorithm = made(name, space)
    assert {key.split(".")[1] for key in algorithm.policy.state_dict()} == {"policy_trunk"}
    tensors, _ = algorithm.state()
    assert {key.partition(".")[0] for key in tensors} >= {"critics", "critic_targets", "generator"}


@pytest.mark.parametrize(("name", "space"), CASES, ids=IDS)
def test_the_best_action_of_a_bandit_becomes_likely(name, space):
    own = {"temperature": 0.05, "tuned": False} if name == "sac" else {}
    own |= {"learning_rate": 1e-3, "critic_rate": 5.0} if name == "ddpg" else {"learning_rate": 3e-3}
    algorithm = made(name, space, network={"policy_gain": 0.01}, critic={"hidden_sizes": [64, 64]}, **own)
    algorithm.policy.behaviour = {"epsilon": 1.0}
    for seed in range(300):
        batch = drawn_batch(algorithm.policy, length=1, slots=64, seed=seed)
        played = batch[0]
        played.terminated[:], played.truncated[:] = True, False
        played.cut_at, played.cut_observation = np.zeros((0, 2), np.int64), np.zeros((0, 4), np.float32)
        acted = algorithm.policy.env_action(played.action[0])
        right = (acted == 2) if space is CHOICES else -np.square(acted - [1.0, -0.5]).sum(-1)
        played.reward[:] = right
        algorithm.update(batch)
    action = algorithm.policy.step(np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32), mode="greedy")
    acted = algorithm.policy.env_action(action.action)
    if space is CHOICES:
        assert (acted == 2).mean() > 0.95
    else:
        assert np.abs(acted - [1.0, -0.5]).mean() < 0.3


def test_only_legal_actions_count_in_discrete_sac():
    algorithm, batch = made("sac", CHOICES), drawn_batch(made("sac", CHOICES).policy, length=1, ending=0.0)
    batch[0].action_mask = np.tile([True, True, False], (1, 12, 1))
    batch[0].last["action_mask"] = batch[0].action_mask[0]
    batch[0].action[:] = 0
    assert algorithm.update(batch).metrics["entropy"] <= np.log(2) + 1e-6


def test_actors_draw_at_random_first_and_then_with_the_algorithms_noise():
    told = {}
    for name, settings in (("sac", {}), ("td3", {"noise": 0.3}), ("ddpg", {"noise": 0.2, "noise_theta": 0.15})):
        algorithm = made(name, random_steps=100, **settings)
        first = algorithm.behaviour()
        algorithm.begin_at(100)
        told[name] = first, algorithm.behaviour()
    random = {"epsilon": 1.0}
    assert told == {
        "sac": (random, {}),
        "td3": (random, {"noise": 0.3}),
        "ddpg": (random, {"noise": 0.2, "noise_theta": 0.15}),
    }


@pytest.mark.parametrize(("name", "space"), CASES, ids=IDS)
def test_critics_divide_images_by_the_policys_number(name, space):
    symbols = Box(0, 255, (1, 6, 6), np.uint8)
    settings = {"value": False, "box_actions": BOXES[name]}
    ours, theirs = (
        build_algorithm(name, {}, build_policy({**settings, "divide_images_by": by}, symbols, space, 1), 1)
        for by in (1.0, 255.0)
    )
    image = torch.ones(2, *symbols.shape, dtype=torch.uint8)
    action = None if isinstance(space, Discrete) else torch.zeros(2, 2)
    torch.testing.assert_close(ours.critics(image, action), theirs.critics(image * 255, action))


def test_critics_see_all_leaves_with_the_policys_normalization():
    space = Dict(here=SEEN, side=Discrete(2))
    network = {"value": False, "box_actions": BOXES["sac"], "normalize_observations": True}
    policy = build_policy(network, space, MOVES, 1)
    policy.take_in({"here": 5 + torch.randn(100, 4), "side": torch.zeros(100, dtype=torch.int64)})
    algorithm = build_algorithm("sac", COMMON, policy, 1)
    seen = {"here": np.full((3, 4), 5, np.float32), "side": np.array([0, 1, 1])}
    leaves = algorithm.seen(policy.leaves(seen))
    assert leaves["here"].abs().max() < 1
    assert algorithm.critics(leaves, torch.zeros(3, 2)).shape == (2, 3)
    assert algorithm.critics.networks[0].flat.size == 4 + 2 + 2


@pytest.mark.parametrize(
    ("name", "space", "network", "settings", "says"),
    [
        ("sac", MOVES, {"box_actions": {}}, {}, r"set network\.box_actions={squashed: true, state_std: true}"),
        ("sac", Dict(a=MOVES), {}, {}, "not a Parts over"),
        ("sac", CHOICES, {"discrete_actions": {"greedy": True}}, {}, "not a Greedy"),
        ("td3", MOVES, {"box_actions": {"squashed": True}}, {}, r"set network\.box_actions={deterministic: true}"),
        (
            "td3",
            MOVES,
            {"core": {"name": "gru", "size": 4}},
            {},
            "'td3' learns from single steps, and this network has",
        ),
        ("ddpg", MOVES, {}, {"noise": -1.0}, r"noise=-1\.0 of ddpg must be at least 0"),
        (
            "sac",
            MOVES,
            {},
            {"temperature": 0.0},
            r"temperature=0\.0 of sac must be above 0, or 0 where it is not tuned",
        ),
        ("sac", MOVES, {}, {"critic": {"hiden_sizes": [3]}}, "'hiden_sizes' does not exist"),
        ("sac", MOVES, {}, {"critic": {"core": {"name": "lstm", "size": 3}}}, "a critic has no memory here"),
    ],
)
def test_unsuitable_networks_and_settings_of_actors_with_critics_are_refused(name, space, network, settings, says):
    with pytest.raises(ConfigurationError, match=says):
        made(name, space, network=network, **settings)
