"""DQN and its variants: updates against a plain implementation, transitions, exploration, declared needs."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from support.drawn_batches import drawn_batch
from support.plain_off_policy import PlainDQN, flat, layers_of

from agents import Batch, build_algorithm, build_policy
from agents.algorithms.transitions import transitions
from warren.errors import ConfigurationError

SEEN = Box(-3, 3, (4,), np.float32)
ADAM = {"learning_rate": 0.01, "adam_epsilon": 1e-3, "max_grad_norm": 0.2}


def greedy_policy(seed=1, actions=3, quantiles=1, value=False, **network):
    actions_table = {"greedy": True, "quantiles": quantiles}
    network = {"hidden_sizes": [16], "policy_gain": 1.0, "discrete_actions": actions_table, "value": value, **network}
    return build_policy(network, SEEN, Discrete(actions), seed)


def made(seed=1, dueling=False, quantiles=1, **settings):
    policy = greedy_policy(seed, quantiles=quantiles, value=dueling)
    return build_algorithm("dqn", {**ADAM, "dueling": dueling, "quantiles": quantiles, **settings}, policy, seed)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("dueling", "quantiles"), [(False, 1), (True, 1), (False, 5), (True, 5)])
def test_updates_of_dqn_equal_a_plain_implementation(double, dueling, quantiles):
    algorithm = made(
        double=double, dueling=dueling, quantiles=quantiles, gamma=0.9, huber=0.8, target_every=2, n_steps=3
    )
    plain = PlainDQN(
        algorithm.policy.state_dict(), actions=3, quantiles=quantiles, double=double, dueling=dueling, gamma=0.9,
        rate=0.01, epsilon=1e-3, norm=0.2, huber=0.8,
    )  # fmt: skip
    for update in range(3):
        batch = drawn_batch(algorithm.policy, seed=update, weighted=update > 0)
        made_update = algorithm.update(batch)
        errors, norm = plain.update(batch[0], batch.weights)
        np.testing.assert_allclose(made_update.priorities, errors, rtol=1e-4, atol=1e-5)
        assert made_update.metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
        if update == 1:
            plain.targets = [[(w.detach().clone(), b.detach().clone()) for w, b in one] for one in plain.networks]
        assert norm > 0.2  # gradients are clipped
    state = algorithm.policy.state_dict()
    names = ["policy_trunk", "value_trunk"][: 1 + dueling]
    ours = [layers_of(state, f"network.{name}.layers") for name in names]
    for tensor, expected in zip(flat(*ours), flat(*plain.networks), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-5)


def test_a_transition_ends_with_its_episode_and_bootstraps_from_where_it_was_cut_off():
    policy = greedy_policy()
    batch = drawn_batch(policy, length=4, slots=60, ending=0.3)
    found, played = transitions(policy, batch, 0.5), batch[0]
    kinds = set()
    for slot in range(60):
        reward, kind, steps = 0.0, "goes on", 4
        for step in range(4):
            reward += 0.5**step * played.reward[step, slot]
            if played.terminated[step, slot] or played.truncated[step, slot]:
                kind, steps = ("terminated" if played.terminated[step, slot] else "cut off"), step + 1
                break
        kinds.add(kind)
        assert found.reward[slot].item() == pytest.approx(reward, abs=1e-5)
        assert found.discount[slot].item() == (0.0 if kind == "terminated" else 0.5**steps)
        if kind == "cut off":
            row = played.cut_at.tolist().index([steps - 1, slot])
            np.testing.assert_array_equal(found.following[slot].numpy(), played.cut_observation[row])
        elif kind == "goes on":
            np.testing.assert_array_equal(found.following[slot].numpy(), played.last["observation"][slot])
    assert kinds == {"goes on", "terminated", "cut off"}
    played.cut_at = played.cut_observation = None
    with pytest.raises(ValueError, match="the trajectory has no cut_observation"):
        transitions(policy, batch, 0.5)


def test_targets_count_only_legal_next_actions():
    algorithm, batch = made(double=True), drawn_batch(greedy_policy(), length=1, slots=60, ending=0.5)
    played = batch[0]
    following = played.last["observation"].copy()
    following[played.cut_at[:, 1]] = played.cut_observation
    values = algorithm.policy.outputs(torch.from_numpy(following)).policy
    free = algorithm.targets(transitions(algorithm.policy, batch, 0.99))
    legal = torch.ones_like(values, dtype=torch.bool).scatter(1, values.argmax(1, keepdim=True), False).numpy()
    played.action_mask, played.last["action_mask"] = np.ones_like(legal)[None], legal
    played.cut_action_mask = legal[played.cut_at[:, 1]]
    played.last["action_mask"][played.cut_at[:, 1]] = True  # the next episode's mask
    masked = algorithm.targets(transitions(algorithm.policy, batch, 0.99))
    second = values.sort(1).values[:, 1] * torch.from_numpy(~played.terminated[0])
    torch.testing.assert_close(masked[:, 0], torch.from_numpy(played.reward[0]) + 0.99 * second)
    assert ((masked < free)[:, 0].numpy() == ~played.terminated[0]).all() and len(played.cut_at)


def test_behaviour_has_a_falling_epsilon_and_epsilon_alpha_if_set():
    algorithm = made(epsilon=0.1, explore_steps=1000, epsilon_alpha=7.0)
    told = {}
    for steps in (0, 500, 1000, 5000):
        algorithm.begin_at(steps)
        told[steps] = algorithm.behaviour()
    assert [one["epsilon"] for one in told.values()] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert told[0]["epsilon_alpha"] == 7.0 and "epsilon_alpha" not in made().behaviour()


def test_the_policy_holds_only_weights_that_act():
    algorithm = made()
    assert {name.split(".")[1] for name in algorithm.policy.state_dict()} == {"policy_trunk"}
    tensors, _ = algorithm.state()
    assert any(name.startswith("target.") for name in tensors)


def test_dqn_needs_a_replay():
    needs = made(n_steps=3, prioritized=True).needs
    assert (needs.source, needs.length, needs.fields) == ("prioritized", 3, ("cut.observation",))
    assert made().needs.source == "uniform"


@pytest.mark.parametrize(
    "settings", [{}, {"target_rate": 0.1, "prioritized": True}, {"quantiles": 4, "optimizer": "rmsprop"}]
)
def test_q_learning_resumes_exactly_from_its_state(settings):
    one, other = made(1, **settings), made(2, **settings)
    for seed in range(2):
        one.update(drawn_batch(one.policy, length=1, seed=seed))
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    for seed in (2, 3):
        batch = drawn_batch(one.policy, length=1, seed=seed)
        first, second = one.update(batch), other.update(batch)
        assert first.metrics == second.metrics
        np.testing.assert_array_equal(first.priorities, second.priorities)
    assert all(torch.equal(a, b) for a, b in zip(one.policy.parameters(), other.policy.parameters(), strict=True))


def test_the_best_action_of_a_bandit_is_found():
    algorithm = made(max_grad_norm=None)
    generator = np.random.default_rng(1)
    for seed in range(150):
        batch = drawn_batch(algorithm.policy, length=1, slots=32, seed=seed)
        batch[0].action[:] = generator.integers(3, size=(1, 32))
        batch[0].terminated[:], batch[0].truncated[:] = True, False
        batch[0].cut_at, batch[0].cut_observation = np.zeros((0, 2), np.int64), np.zeros((0, 4), np.float32)
        batch[0].reward[:] = batch[0].action == (batch[0].observation[..., 0] > 0)
        algorithm.update(batch)
    seen = generator.normal(size=(200, 4)).astype(np.float32)
    assert (algorithm.policy.step(seen).action == (seen[:, 0] > 0)).mean() > 0.9


@pytest.mark.parametrize(
    ("network", "settings", "says"),
    [
        ({"discrete_actions": {}}, {}, r"set network\.discrete_actions\.greedy=true"),
        ({}, {"quantiles": 5}, r"algorithm\.quantiles: 5 of 'dqn', but network\.discrete_actions\.quantiles is 1"),
        ({}, {"dueling": True}, r"algorithm\.dueling: 'dqn' needs the network's value"),
        ({"core": {"name": "lstm", "size": 4}}, {}, "has a memory"),
        ({}, {"epsilon": 1.5, "target_rate": 0.0}, r"target_rate=0\.0 of dqn must be above 0"),
    ],
)
def test_unsuitable_networks_and_settings_of_q_learning_are_refused(network, settings, says):
    with pytest.raises(ConfigurationError, match=says):
        build_algorithm("dqn", settings, greedy_policy(**network), 1)


def test_values_in_units_of_their_own_are_refused():
    network = {"hidden_sizes": [8], "discrete_actions": {"greedy": True}, "normalize_values": True}
    policy = build_policy(network, Box(-1, 1, (4,), np.float32), Discrete(3), 1)
    with pytest.raises(ConfigurationError, match=r"network\.normalize_values: 'dqn' learns values of actions"):
        build_algorithm("dqn", {"dueling": True}, policy, 1)


def test_dueling_is_refused_where_reward_channels_have_values_of_their_own():
    network = {"hidden_sizes": [8], "discrete_actions": {"greedy": True}}
    policy = build_policy(network, Box(-1, 1, (4,), np.float32), Discrete(3), 1, {"win": 1.0, "damage": 0.1})
    build_algorithm("dqn", {}, policy, 1)
    with pytest.raises(ConfigurationError, match=r"algorithm\.dueling: 'dqn' adds one value .* channels have 2 "):
        build_algorithm("dqn", {"dueling": True}, policy, 1)


def test_a_loss_that_is_not_finite_changes_nothing():
    algorithm, batch = made(), drawn_batch(greedy_policy(), length=1)
    batch[0].reward[0, 0] = np.nan
    before = {name: tensor.clone() for name, tensor in algorithm.policy.state_dict().items()}
    with pytest.raises(Exception, match="dqn, the step of the policy of the update after 0 environment steps"):
        algorithm.update(Batch([batch[0]]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in algorithm.policy.state_dict().items())


def test_dqn_is_refused_without_a_replay():
    with pytest.raises(ConfigurationError, match=r"'dqn' learns from another source \(uniform\)"):
        build_algorithm("dqn", {}, greedy_policy(), 1, replay=False)


@pytest.mark.parametrize(
    ("space", "remedy"),
    [
        (Discrete(3), "set network.discrete_actions.greedy=true"),
        (Box(-1, 1, (2,), np.float32), "for a Box take sac, for others ppo"),
        (MultiDiscrete([2, 3]), "for a Box take sac, for others ppo"),
    ],
)
def test_a_policy_that_does_not_act_by_values_is_refused_with_what_helps(space, remedy):
    policy = build_policy({"hidden_sizes": [16], "value": False}, SEEN, space, seed=1)
    with pytest.raises(ConfigurationError, match=rf"'dqn' learns values of Discrete actions.* by them; {remedy}$"):
        build_algorithm("dqn", {}, policy, 1)
