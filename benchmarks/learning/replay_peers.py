"""Settings of algorithms with a replay, by the names of Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from torch.nn import ReLU, Tanh
from torch.optim import Adam

from agents.algorithms.critics import CriticsConfig
from agents.algorithms.ddpg.config import DDPGConfig
from agents.algorithms.dqn.config import DQNConfig
from agents.algorithms.off_policy import OffPolicyConfig
from agents.algorithms.sac.config import SACConfig
from agents.algorithms.td3.config import TD3Config
from agents.configuration import parse
from warren.errors import ConfigurationError
from workers.config.schema import Config

ACTIVATIONS = {"relu": ReLU, "tanh": Tanh}
CONFIGS: dict[str, type[OffPolicyConfig]] = {"dqn": DQNConfig, "sac": SACConfig, "td3": TD3Config, "ddpg": DDPGConfig}


def equal_replay(config: Config, copies: int) -> dict[str, Any]:
    """Return the peer's keyword arguments for a run with a replay, of `copies` environments.

    Both sides make the updates that a rollout pays for when it has ended. `action_noise` is a standard deviation.
    Raises ConfigurationError for settings that the peer does not have.
    """
    settings = {key: value for key, value in config.algorithm.items() if key != "name"}
    algorithm = parse(CONFIGS[config.algorithm["name"]], config.algorithm["name"], settings)
    if not isinstance(algorithm.learning_rate, int | float) or algorithm.prioritized:
        raise ConfigurationError("the peer has a constant learning rate here, and no priorities")
    if algorithm.optimizer != "adam":
        raise ConfigurationError("the peer's optimizer is Adam here; set algorithm.optimizer=adam")
    replay = config.replay
    given = _values(config, algorithm) if isinstance(algorithm, DQNConfig) else _critics(config, algorithm)
    given["policy_kwargs"] |= _optimizer(algorithm)
    return {
        "learning_rate": float(algorithm.learning_rate),
        "buffer_size": replay.capacity,
        "batch_size": replay.batch,
        "learning_starts": replay.begin_at,
        "gamma": algorithm.gamma,
        "n_steps": algorithm.n_steps,
        **_pace(config, copies),
        **given,
    }


def updates_a_step(config: Config) -> Fraction:
    """Return the number of updates per environment step."""
    return Fraction(config.replay.samples_per_insert).limit_denominator(1000) / config.replay.batch


def _pace(config: Config, copies: int) -> dict[str, int]:
    """Return rollout lengths and numbers of updates, whole numbers, in the ratio that the limiter keeps."""
    steps = config.unroll_length
    updates = updates_a_step(config) * steps * copies
    if updates.denominator != 1:
        raise ConfigurationError(
            f"{steps} steps of {copies} environments pay for {updates} updates; give another unroll_length, or "
            "another replay.samples_per_insert"
        )
    return {"train_freq": steps, "gradient_steps": int(updates)}


def _values(config: Config, algorithm: DQNConfig) -> dict[str, Any]:
    if algorithm.double or algorithm.dueling or algorithm.huber != 1 or algorithm.epsilon_alpha:
        raise ConfigurationError("the peer's DQN is not double, not dueling, with one epsilon and a huber loss from 1")
    network, contrib = dict(config.network), algorithm.quantiles > 1
    policy: dict[str, Any] = {"net_arch": list(network["hidden_sizes"]), **_activation(network)}
    return {
        "max_grad_norm": algorithm.max_grad_norm,
        "tau": algorithm.target_rate,
        "target_update_interval": int(algorithm.target_every / updates_a_step(config)),
        "exploration_fraction": algorithm.explore_steps / config.total_steps,
        "exploration_final_eps": algorithm.epsilon,
        "policy_kwargs": policy | ({"n_quantiles": algorithm.quantiles} if contrib else {}),
    }


def _critics(config: Config, algorithm: OffPolicyConfig) -> dict[str, Any]:
    assert isinstance(algorithm, CriticsConfig)
    network, critic = dict(config.network), algorithm.critic
    sizes = {"pi": list(network["hidden_sizes"]), "qf": list(critic["hidden_sizes"])}
    shared = {"tau": algorithm.target_rate, "policy_kwargs": {"net_arch": sizes, **_activation(network)}}
    if isinstance(algorithm, SACConfig):
        entropy = "auto" if algorithm.tuned else algorithm.temperature
        wanted = "auto" if algorithm.target_entropy is None else algorithm.target_entropy
        return shared | {"ent_coef": entropy, "target_entropy": wanted}
    assert isinstance(algorithm, TD3Config)
    if algorithm.noise_theta is not None:
        raise ConfigurationError("the peer's noise is gaussian here; set algorithm.noise_theta=null")
    shared["action_noise"] = algorithm.noise
    if config.algorithm["name"] == "ddpg":
        return shared
    return shared | {
        "policy_delay": algorithm.policy_every,
        "target_policy_noise": algorithm.target_noise,
        "target_noise_clip": algorithm.target_noise_clip,
    }


def _optimizer(algorithm: OffPolicyConfig) -> dict[str, Any]:
    """Return Adam with Warren's epsilon: by default sb3-contrib's QR-DQN has 0.01 / batch in place of 1e-8."""
    return {"optimizer_class": Adam, "optimizer_kwargs": {"eps": algorithm.adam_epsilon}}


def _activation(network: dict[str, Any]) -> dict[str, Any]:
    return {"activation_fn": ACTIVATIONS[network["activation"]]}
