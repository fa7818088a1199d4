"""Recorded results of Stable-Baselines3 and sb3-contrib, which tests compare with Warren's without installing them.

    pip install -e '.[peers]'
    python -m tests.support.peer_records dqn     # write the records of DQN and QR-DQN again; without a name: all

A record has the inputs (weights, trajectories, orders of minibatches), the peers' results, and their versions.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
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
DQN_EXPERIMENTS = {"cartpole_dqn": "DQN", "cartpole_qrdqn": "QRDQN"}
DQN_STEPS, DQN_BATCH, DQN_UPDATES, ACTIONS = 3, 64, 20, 2
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


# Updates of DQN and QR-DQN.


def dqn_config(experiment: str) -> Any:
    """Return the settings of an experiment, with layers small enough for a record."""
    from benchmarks.apparatus.seeds import composed

    return composed([f"experiment={experiment}", f"network.hidden_sizes={HIDDEN}", f"replay.batch={DQN_BATCH}"])


def dqn_policy(experiment: str) -> Policy:
    """Return a policy of the kind that a record's weights are for."""
    config = dqn_config(experiment)
    return build_policy(config.network, *envs.spaces(config.env.settings()), 0)


def dqn_inputs(experiment: str) -> Record:
    """Return transitions of three steps, some cut short by an end, the weights, and other weights of the target."""
    generator = np.random.default_rng(0)
    terminated = np.zeros((DQN_STEPS, DQN_BATCH), np.bool_)
    terminated[1, :10] = terminated[2, 10:20] = True
    record = {f"before.{name}": tensor.numpy().copy() for name, tensor in dqn_policy(experiment).state_dict().items()}
    record |= {f"target.{name.removeprefix('before.')}": np.float32(1.05) * array for name, array in record.items()}
    return record | {
        "observation": generator.normal(size=(DQN_STEPS, DQN_BATCH, 4)).astype(np.float32),
        "last_observation": generator.normal(size=(DQN_BATCH, 4)).astype(np.float32),
        "action": generator.integers(0, ACTIONS, (DQN_STEPS, DQN_BATCH)),
        "reward": generator.normal(1.0, 1.0, (DQN_STEPS, DQN_BATCH)).astype(np.float32),
        "terminated": terminated,
        "settings": np.array(json.dumps(dqn_config(experiment).algorithm)),
    }


def dqn_updates_of_peer(experiment: str, record: Record) -> Record:
    """Have the peer make the updates, with equal settings; return its losses and weights, in Warren's order."""
    from benchmarks.learning.peers import LIBRARIES, settings_of

    config, kind = dqn_config(experiment), DQN_EXPERIMENTS[experiment]
    library = importlib.import_module(LIBRARIES[kind])
    peer = getattr(library, kind)("MlpPolicy", gymnasium.make("CartPole-v1"), device="cpu", **settings_of(config))
    peer.set_logger(importlib.import_module("stable_baselines3.common.logger").configure(None, []))
    of_peer = (peer.quantile_net, peer.quantile_net_target) if kind == "QRDQN" else (peer.q_net, peer.q_net_target)
    quantiles, names = int(config.algorithm["quantiles"]), list(dqn_policy(experiment).state_dict())
    for prefix, network in zip(("before.", "target."), of_peer, strict=True):
        with torch.no_grad():
            for name, its in zip(names, network.parameters(), strict=True):
                its.copy_(_grouped(torch.from_numpy(record[prefix + name]), ACTIONS, quantiles))
    peer.replay_buffer = _Samples(record, config.algorithm["gamma"])
    losses = []
    for _ in range(DQN_UPDATES):
        peer.train(1, DQN_BATCH)
        losses.append(peer.logger.name_to_value["train/loss"])
    after = {
        f"after.{name}": _grouped(its.detach(), quantiles, ACTIONS).numpy().copy()
        for name, its in zip(names, of_peer[0].parameters(), strict=True)
    }
    return after | {"losses": np.array(losses)}


def _grouped(rows: torch.Tensor, first: int, second: int) -> torch.Tensor:
    """Return the last layer with its rows [first * second, ...] in the order [second * first, ...]; else `rows`.

    Warren groups the outputs by action, the peer by quantile.
    """
    if len(rows) != first * second:
        return rows
    return rows.reshape(first, second, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)


class _Samples:
    """A replay of the peer's that draws the record's transitions, of several steps each."""

    def __init__(self, record: Record, gamma: float) -> None:
        from stable_baselines3.common.type_aliases import ReplayBufferSamples

        counts = np.arange(DQN_STEPS)[:, None] < np.where(record["terminated"][1], 2, 3)
        total = (gamma ** np.arange(DQN_STEPS)[:, None] * counts * record["reward"]).sum(0).astype(np.float32)
        discount = np.full(DQN_BATCH, gamma**DQN_STEPS, np.float32)
        columns = (record["action"][0], record["terminated"].any(0).astype(np.float32), total, discount)
        action, done, reward, discounts = (torch.as_tensor(column)[:, None] for column in columns)
        observation, following = torch.as_tensor(record["observation"][0]), torch.as_tensor(record["last_observation"])
        self.samples = ReplayBufferSamples(observation, action, following, done, reward, discounts)

    def sample(self, count: int, env: Any = None) -> Any:
        assert count == DQN_BATCH
        return self.samples


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


def ppo_records() -> Record:
    """Return the records of PPO."""
    inputs = {env_id: ppo_inputs(env_id) for env_id in ENV_IDS}
    return _named({env_id: record | sb3_update(env_id, record) for env_id, record in inputs.items()})


def dqn_records() -> Record:
    """Return the records of DQN and QR-DQN."""
    inputs = {experiment: dqn_inputs(experiment) for experiment in DQN_EXPERIMENTS}
    return _named({name: record | dqn_updates_of_peer(name, record) for name, record in inputs.items()})


def lstm_records() -> Record:
    """Return the record of an LSTM."""
    inputs = lstm_inputs()
    return _named({"lstm": inputs | contrib_gradients(inputs)})


def _named(records: Mapping[str, Record]) -> Record:
    return {f"{name}/{key}": array for name, record in records.items() for key, array in record.items()}


RECORDS = {"ppo": ppo_records, "dqn": dqn_records, "lstm": lstm_records}


def main() -> None:
    """Write the records that the command line names, or all; the file keeps the others."""
    with np.load(FILE) as file:
        arrays = dict(file)
    packages = ("stable-baselines3", "sb3-contrib", "torch", "numpy", "gymnasium")
    versions = json.dumps({package: version(package) for package in packages})
    for name in sys.argv[1:] or RECORDS:
        arrays |= RECORDS[name]() | {f"versions/{name}": np.array(versions)}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
