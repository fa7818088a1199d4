"""One run of a peer to the same goal: Stable-Baselines3, or sb3-contrib if the policy has a memory.

The goal is reached when the mean return of the last `env.goal_episodes` training episodes reaches it, which is checked
after every rollout, as Warren's learner checks after every batch.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agents.algorithms.a2c import A2CConfig
from agents.algorithms.ppo import PPOConfig
from agents.configuration import parse
from benchmarks.apparatus.curves import Curve
from benchmarks.learning.replay_peers import CONFIGS as OF_REPLAYS
from benchmarks.learning.replay_peers import equal_replay
from warren.errors import ConfigurationError
from workers.config.schema import Config

LIBRARIES = {
    **dict.fromkeys(("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3"), "stable_baselines3"),
    **dict.fromkeys(("QRDQN", "RecurrentPPO"), "sb3_contrib"),
}


@dataclass(frozen=True)
class Peer:
    """`algorithm`: one of LIBRARIES; `settings`: its own keyword arguments, in addition to those equal to Warren's."""

    algorithm: str = "PPO"
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str = "equal settings"  # source of the further settings, as the page of figures names it

    @property
    def title(self) -> str:
        return {"stable_baselines3": "Stable-Baselines3", "sb3_contrib": "sb3-contrib"}[LIBRARIES[self.algorithm]]

    def missing(self) -> str | None:
        """Return what to install if the peer is missing; None if it is there."""
        library = LIBRARIES[self.algorithm]
        try:
            importlib.import_module(library)
        except ModuleNotFoundError:
            return f"{self.title} is missing ({library}); install it: pip install -e '.[peers]'"
        return None


@dataclass
class Outcome:
    """One run; `steps` is None if it did not reach the goal within the limit."""

    steps: int | None
    seconds: float  # from the first environment step to the goal
    sampling_seconds: float


Run = tuple[int | None, float, Curve]  # steps to the goal or None, seconds, curve


def run_peer(peer: Peer, config: Config, seed: int) -> Run:
    """Train the peer in a process of its own, with one thread."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run_peer, (peer, config, seed))


def _run_peer(peer: Peer, config: Config, seed: int) -> Run:
    import torch

    torch.set_num_threads(1)
    curve: list[tuple[int, float]] = []
    outcome = learn(peer, config, seed, on_rollout=lambda *point: curve.append(point))
    return outcome.steps, outcome.seconds, curve


def equal_settings(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of Warren's PPO or A2C by Stable-Baselines3's names.

    A2C keeps the peer's own optimizer (RMSprop); Warren's is Adam.
    """
    settings = {key: value for key, value in algorithm.items() if key != "name"}
    if algorithm["name"] == "a2c":
        a2c = parse(A2CConfig, "a2c", settings)
        return _shared(a2c) | {"gae_lambda": a2c.gae_lambda, "normalize_advantage": a2c.normalize_advantage}
    if algorithm["name"] != "ppo":
        raise ConfigurationError(f"{algorithm['name']} has no peer of equal settings; give the peer an experiment")
    ppo = parse(PPOConfig, "ppo", settings)
    return _shared(ppo) | {
        "n_epochs": ppo.epochs,
        "batch_size": ppo.minibatch_size,
        "gae_lambda": ppo.gae_lambda,
        "clip_range": ppo.clip_range,
        "clip_range_vf": ppo.clip_range_value,
        "normalize_advantage": ppo.normalize_advantage,
        "target_kl": ppo.target_kl,
    }


def _shared(config: PPOConfig | A2CConfig) -> dict[str, Any]:
    return {
        "learning_rate": config.learning_rate,
        "max_grad_norm": config.max_grad_norm,
        "gamma": config.gamma,
        "ent_coef": config.entropy_coefficient,
        "vf_coef": config.value_coefficient,
    }


def equal_normalization(config: Config) -> dict[str, Any]:
    """Return the peer's VecNormalize settings that equal Warren's normalization; {} for none."""
    observations = bool(config.network.get("normalize_observations"))
    rewards = bool(config.algorithm.get("scale_rewards"))
    if not (observations or rewards):
        return {}
    return {"norm_obs": observations, "norm_reward": rewards, "gamma": config.algorithm["gamma"]}


def settings_of(config: Config) -> dict[str, Any]:
    """Return the peer's keyword arguments that equal the settings of a run."""
    algorithm = dict(config.algorithm)
    if algorithm["name"] in OF_REPLAYS:
        return equal_replay(config, config.actors * config.env.num_envs)
    settings = {"n_steps": config.unroll_length, **equal_settings(algorithm)}
    if algorithm.get("anneal_steps"):
        settings["learning_rate"] = _annealed(algorithm, config.total_steps)
    return settings


def learn(
    peer: Peer, config: Config, seed: int, on_rollout: Callable[[int, float], None] = lambda steps, mean_return: None
) -> Outcome:
    """Train the peer on the environment of `config`, with its number of copies, its rollouts and its settings.

    `on_rollout` is called after every rollout: steps so far, mean return of the last `env.goal_episodes` or fewer.
    """
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    import envs

    assert config.env.goal is not None
    goal, limit = config.env.goal, config.total_steps
    returns: deque[float] = deque(maxlen=config.env.goal_episodes)

    class UntilGoal(BaseCallback):  # type: ignore[misc]
        began = sampling = 0.0
        reached = False

        def _on_rollout_start(self) -> None:
            self.began = time.perf_counter()

        def _on_step(self) -> bool:
            returns.extend(info["episode"]["r"] for info in self.locals["infos"] if "episode" in info)
            return not self.reached

        def _on_rollout_end(self) -> None:
            self.sampling += time.perf_counter() - self.began
            mean = float(np.mean(returns)) if returns else -np.inf
            if returns:
                on_rollout(self.num_timesteps, mean)
            if len(returns) == returns.maxlen and mean >= goal:
                self.steps, self.end, self.reached = self.num_timesteps, time.perf_counter(), True

    chosen: dict[str, Any] = {"policy": "MlpPolicy", **settings_of(config), **peer.settings}
    environment = config.env.settings()
    copies = make_vec_env(lambda: envs.make(environment), config.actors * config.env.num_envs, seed=1000 * seed)
    if normalization := equal_normalization(config):
        copies = VecNormalize(copies, **normalization)  # outside of what counts returns, which do not change
    if (deviation := chosen.get("action_noise")) is not None:
        size = copies.action_space.shape[0]
        chosen["action_noise"] = NormalActionNoise(size * [0.0], size * [deviation])
    kind = getattr(importlib.import_module(LIBRARIES[peer.algorithm]), peer.algorithm)
    model = kind(env=copies, seed=seed, device="cpu", **chosen)
    callback = UntilGoal()
    start = time.perf_counter()
    model.learn(limit, callback=callback)
    if callback.reached:
        return Outcome(callback.steps, callback.end - start, callback.sampling)
    return Outcome(None, time.perf_counter() - start, callback.sampling)


def _annealed(algorithm: Mapping[str, Any], limit: int) -> Callable[[float], float]:
    """Return the learning rate as a function of the share of `limit` that is left, which Stable-Baselines3 expects."""
    rate, over, to = algorithm["learning_rate"], algorithm["anneal_steps"], algorithm["anneal_to"]

    def at(left: float) -> float:
        done = min(1.0, (1.0 - left) * limit / over)
        return float(rate * (1.0 + (to - 1.0) * done))

    return at
