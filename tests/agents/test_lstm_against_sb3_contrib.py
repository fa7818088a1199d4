"""PPO with an LSTM, step by step beside sb3-contrib's RecurrentPPO: the same weights, the same gradients."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from agents import build_policy
from agents.operators.losses import clipped_surrogate, standardize, value_loss

pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed (the `peers` extra)")

STEPS, SLOTS, SIZE = 32, 4, 16


def test_an_unroll_has_the_losses_and_gradients_of_sb3_contribs_lstm_with_the_same_weights():
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    space, actions = Box(-2.0, 2.0, (2,), np.float32), Discrete(2)
    network = {"name": "mlp", "hidden_sizes": [], "policy_gain": 1.0, "core": {"name": "lstm", "size": SIZE}}
    ours = build_policy(network, space, actions, seed=3)
    theirs = RecurrentActorCriticPolicy(
        space, actions, lambda _: 1e-3, net_arch={"pi": [], "vf": []}, lstm_hidden_size=SIZE, enable_critic_lstm=True
    )
    trunks = ours.network.trunks
    layers = [
        (trunks["policy"].core.layer, theirs.lstm_actor),
        (trunks["value"].core.layer, theirs.lstm_critic),
        (ours.network.policy_head, theirs.action_net),
        (ours.network.value_head, theirs.value_net),
    ]
    pairs = [
        (mine, dict(its.named_parameters())[name]) for layer, its in layers for name, mine in layer.named_parameters()
    ]
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    with torch.no_grad():
        for mine, its in pairs:
            mine += 0.1 * random(*mine.shape)
            its.copy_(mine)
    observation, action = random(STEPS, SLOTS, 2), torch.randint(2, (STEPS, SLOTS), generator=generator)
    begins = torch.rand(STEPS, SLOTS, generator=generator) < 0.1
    memory = {name: random(SLOTS, *shape) for name, shape in ours.network.memory.items()}
    old_log_prob, advantage, target = -torch.rand(STEPS, SLOTS, generator=generator), *random(2, STEPS, SLOTS)

    def loss(log_prob, entropy, value):
        ratio = (log_prob - old_log_prob).exp()
        return (
            clipped_surrogate(ratio, standardize(advantage), 0.2)
            + 0.5 * value_loss(value, target)
            - 0.01 * entropy.mean()
        )

    said, _ = ours.unroll(observation, memory, begins, action)
    loss_of_ours = loss(said.log_prob, said.entropy, said.value)
    loss_of_ours.backward()

    def one_after_another(leaf):  # they have [N * T, ...], a slot's steps together
        return leaf.transpose(0, 1).flatten(0, 1)

    def states(trunk):
        return memory[f"{trunk}.h"][None], memory[f"{trunk}.c"][None]

    value, log_prob, entropy = theirs.evaluate_actions(
        one_after_another(observation),
        one_after_another(action),
        RNNStates(states("policy"), states("value")),
        one_after_another(begins).float(),
    )
    loss_of_theirs = loss(*(leaf.reshape(SLOTS, STEPS).T for leaf in (log_prob, entropy, value)))
    loss_of_theirs.backward()
    torch.testing.assert_close(loss_of_ours, loss_of_theirs)
    for mine, its in pairs:
        torch.testing.assert_close(mine.grad, its.grad)
