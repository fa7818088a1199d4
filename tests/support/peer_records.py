"""Recorded results of Stable-Baselines3 and sb3-contrib, which tests compare with Warren's without installing them.

    pip install -e '.[peers]'
    python tests/support/peer_records.py     # write the record again

A record has the inputs (weights, trajectories, orders of minibatches), the peers' results, and their versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

import envs
from agents import Policy, build_policy
from agents.operators.losses import clipped_surrogate, standardize, value_loss

FILE = Path(__file__).with_name("peer_records.npz")
STEPS, ENVS, EPOCHS, MINIBATCH, HIDDEN = 64, 4, 3, 64, [16, 16]
SETTINGS = {"gamma": 0.98, "gae_lambda": 0.9, "learning_rate": 1e-3}
ENV_IDS = ("CartPole-v1", "Pendulum-v1")
LSTM_STEPS, LSTM_SLOTS, LSTM_SIZE = 32, 4, 16
METRICS = {
    "policy_loss": "train/policy_gradient_loss",
    "value_loss": "train/value_loss",
    "entropy": "train/entropy_loss",
    "clip_fraction": "train/clip_fraction",
    "explained_variance": "train/explained_variance",
}
Record = dict[str, np.ndarray]


def read(name: str) -> Record:
    """Return the arrays of one record by name."""
    with np.load(FILE) as file:
        return {key.removeprefix(f"{name}/"): file[key] for key in file.files if key.startswith(f"{name}/")}


def weights_of(record: Mapping[str, np.ndarray], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with `prefix`."""
    return {
        key.removeprefix(prefix): torch.from_numpy(array) for key, array in record.items() if key.startswith(prefix)
    }


# An update of PPO.


def ppo_policy(env_id: str) -> Policy:
    """Return a policy of the kind that a record's weights are for."""
    vector = envs.make_vector(env_id, 1, seed=1)
    policy = build_policy({"hidden_sizes": HIDDEN}, vector.single_observation_space, vector.single_action_space, seed=1)
    vector.close()
    return policy


def ppo_inputs(env_id: str) -> Record:
    """Play the steps of an update, some episodes truncated; return them with the weights and orders of minibatches."""
    from workers.rollout.vector_sampler import VectorSampler

    policy = ppo_policy(env_id)
    vector = envs.make_vector(env_id, ENVS, seed=1, max_episode_steps=20)
    played = VectorSampler(vector, policy, seed=1).collect(STEPS)
    record = {f"before.{name}": tensor.numpy().copy() for name, tensor in policy.state_dict().items()}
    for name in ("observation", "action", "reward", "terminated", "truncated", "version", "episodes"):
        record[name] = getattr(played, name)
    record |= {"log_prob": played.extras["log_prob"], "value": played.extras["value"], "cut": played.cut["value"]}
    record |= {"last_observation": played.last["observation"], "last_value": played.last["value"]}
    record["orders"] = np.stack([np.random.default_rng(epoch).permutation(STEPS * ENVS) for epoch in range(EPOCHS)])
    return record


def sb3_update(env_id: str, record: Record) -> Record:
    """Have Stable-Baselines3 make the update; return its weights after it, by Warren's names, and its metrics."""
    import stable_baselines3 as sb3

    policy = ppo_policy(env_id)
    policy.load_state_dict(weights_of(record, "before."))
    theirs = sb3.PPO(
        "MlpPolicy", sb3.common.env_util.make_vec_env(env_id, ENVS), **SETTINGS, n_steps=STEPS, batch_size=MINIBATCH,
        n_epochs=EPOCHS, ent_coef=0.01, device="cpu", seed=1, policy_kwargs={"net_arch": HIDDEN},
    )  # fmt: skip
    pairs = _sb3_pairs(policy, theirs.policy)
    with torch.no_grad():
        for mine, its in pairs:
            its.copy_(mine)
    # Their buffer, filled as their collect_rollouts fills it: a truncated step's reward includes its future value.
    theirs._setup_learn(STEPS * ENVS)
    buffer = theirs.rollout_buffer
    done = record["terminated"] | record["truncated"]
    reward = record["reward"] + SETTINGS["gamma"] * record["cut"]
    episode_start = np.ones(ENVS)
    for t in range(STEPS):
        action = record["action"][t].reshape(ENVS, -1)
        value, log_prob = torch.tensor(record["value"][t]), torch.tensor(record["log_prob"][t])
        buffer.add(record["observation"][t], action, reward[t], episode_start, value, log_prob)
        episode_start = done[t]
    buffer.compute_returns_and_advantage(torch.tensor(record["last_value"]), done[-1])
    # One order of minibatches for both.
    orders, permutation = iter(record["orders"]), np.random.permutation
    np.random.permutation = lambda _: next(orders)
    try:
        theirs.train()
    finally:
        np.random.permutation = permutation
    with torch.no_grad():
        for mine, its in pairs:
            mine.copy_(its)
    logged = theirs.logger.name_to_value
    metrics = {f"metric.{ours}": np.float64(logged[name]) for ours, name in METRICS.items()}
    metrics["metric.entropy"] = -metrics["metric.entropy"]
    return {f"after.{name}": tensor.numpy().copy() for name, tensor in policy.state_dict().items()} | metrics


def _sb3_pairs(policy: Policy, theirs: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    ours: Any = policy.network
    layers = [
        *zip(ours.policy_trunk.layers, [*theirs.mlp_extractor.policy_net[::2], theirs.action_net], strict=True),
        *zip(ours.value_trunk.layers, [*theirs.mlp_extractor.value_net[::2], theirs.value_net], strict=True),
    ]
    pairs = [pair for mine, its in layers for pair in ((mine.weight, its.weight), (mine.bias, its.bias))]
    if not isinstance(policy.action_space, Discrete):
        pairs.append((policy.distribution.log_std, theirs.log_std))
    return pairs


# Losses and gradients of an unroll with an LSTM.

LSTM_SPACES = Box(-2.0, 2.0, (2,), np.float32), Discrete(2)


def lstm_policy() -> Policy:
    """Return a policy of the kind that the record's weights are for."""
    network = {"name": "mlp", "hidden_sizes": [], "policy_gain": 1.0, "core": {"name": "lstm", "size": LSTM_SIZE}}
    return build_policy(network, *LSTM_SPACES, seed=3)


def lstm_inputs() -> Record:
    """Draw weights, an unroll and a memory before it."""
    policy, generator = lstm_policy(), torch.Generator().manual_seed(1)
    shape = (LSTM_STEPS, LSTM_SLOTS)
    record = {
        f"before.{name}": tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in policy.state_dict().items()
    }
    record["observation"] = torch.randn(*shape, 2, generator=generator)
    record["action"] = torch.randint(2, shape, generator=generator)
    record["begins"] = torch.rand(shape, generator=generator) < 0.1
    record |= {
        f"memory.{name}": torch.randn(LSTM_SLOTS, *part, generator=generator)
        for name, part in policy.network.memory.items()
    }
    record["old_log_prob"] = -torch.rand(shape, generator=generator)
    record["advantage"], record["target"] = torch.randn(2, *shape, generator=generator)
    return {name: tensor.numpy() for name, tensor in record.items()}


def lstm_loss(record: Record, log_prob: torch.Tensor, entropy: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return PPO's loss of a policy's outputs on the unroll."""
    given = {name: torch.from_numpy(record[name]) for name in ("old_log_prob", "advantage", "target")}
    ratio = (log_prob - given["old_log_prob"]).exp()
    return (
        clipped_surrogate(ratio, standardize(given["advantage"]), 0.2)
        + 0.5 * value_loss(value, given["target"])
        - 0.01 * entropy.mean()
    )


def contrib_gradients(record: Record) -> Record:
    """Have sb3-contrib's recurrent policy evaluate the unroll; return the loss and its gradients, by Warren's names."""
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    ours = lstm_policy()
    ours.load_state_dict(weights_of(record, "before."))
    theirs = RecurrentActorCriticPolicy(
        *LSTM_SPACES,
        lambda _: 1e-3,
        net_arch={"pi": [], "vf": []},
        lstm_hidden_size=LSTM_SIZE,
        enable_critic_lstm=True,
    )
    network: Any = ours.network
    layers = [
        (network.trunks["policy"].core.layer, theirs.lstm_actor),
        (network.trunks["value"].core.layer, theirs.lstm_critic),
        (network.policy_head, theirs.action_net),
        (network.value_head, theirs.value_net),
    ]
    pairs = [
        (mine, dict(its.named_parameters())[name]) for layer, its in layers for name, mine in layer.named_parameters()
    ]
    with torch.no_grad():
        for mine, its in pairs:
            its.copy_(mine)

    def one_after_another(name: str) -> torch.Tensor:  # theirs are [N * T, ...], grouped by slot
        return torch.from_numpy(record[name]).transpose(0, 1).flatten(0, 1)

    def states(trunk: str) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(record[f"memory.{trunk}.{part}"])[None] for part in "hc")

    value, log_prob, entropy = theirs.evaluate_actions(
        one_after_another("observation"),
        one_after_another("action"),
        RNNStates(states("policy"), states("value")),
        one_after_another("begins").float(),
    )
    loss = lstm_loss(record, *(leaf.reshape(LSTM_SLOTS, LSTM_STEPS).T for leaf in (log_prob, entropy, value)))
    loss.backward()
    its_of = {id(mine): its for mine, its in pairs}
    gradients = {f"gradient.{name}": its_of[id(mine)].grad.numpy() for name, mine in ours.named_parameters()}
    return gradients | {"loss": loss.detach().numpy()}


def main() -> None:
    """Write the record."""
    arrays: Record = {}
    for env_id in ENV_IDS:
        inputs = ppo_inputs(env_id)
        arrays |= {f"{env_id}/{name}": array for name, array in (inputs | sb3_update(env_id, inputs)).items()}
    inputs = lstm_inputs()
    arrays |= {f"lstm/{name}": array for name, array in (inputs | contrib_gradients(inputs)).items()}
    packages = ("stable-baselines3", "sb3-contrib", "torch", "numpy", "gymnasium")
    arrays["versions"] = np.array(json.dumps({package: version(package) for package in packages}))
    np.savez_compressed(FILE, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
