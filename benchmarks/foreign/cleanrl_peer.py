"""CleanRL's PPO on envpool's games, for `benchmarks.throughput`: `python cleanrl_peer.py CHECKOUT cartpole|pong STEPS`.

It runs by the Python of an environment with torch, envpool, gymnasium and tyro; CHECKOUT is of vwxyzjn/cleanrl. It
prints a line of JSON: steps_per_s with sampling and updates, and the mean return of the last episodes. Steps of Pong
are the agent's.

CleanRL's ppo_atari_envpool.py runs unchanged, with as many environments, steps and samples a minibatch as Warren; for
CartPole with the network of its ppo.py. Three things around it are newer or missing here: envpool steps by gymnasium's
rules, gym is replaced by the two names that the file uses, and TensorBoard's writer writes nothing.
"""

import contextlib
import io
import json
import re
import sys
import time
import types
from pathlib import Path
from unittest import mock

import envpool
import gymnasium
import numpy as np
import torch

checkout, game, total = Path(sys.argv[1]) / "cleanrl", sys.argv[2], int(sys.argv[3])
MAIN = 'if __name__ == "__main__":'
LAST = 100  # episodes in the mean return
OPTIONS = {
    "pong": ["--env-id=Pong-v5", "--num-envs=16", "--num-minibatches=8"],
    "cartpole": ["--env-id=CartPole-v1", "--num-envs=128", "--learning-rate=2.5e-3", "--clip-coef=0.2"],
}[game]


class Wrapper:
    """The part of gym.Wrapper that the file uses."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)

    def reset(self):
        return self.env.reset()

    def step(self, action):
        return self.env.step(action)


class Pool:
    """An envpool by the older rules: a reset returns only observations, a step one `done`."""

    def __init__(self, pool):
        self.pool = pool
        self.action_space, self.observation_space = pool.action_space, pool.observation_space

    def reset(self):
        return self.pool.reset()[0]

    def step(self, action):
        observations, rewards, terminated, truncated, infos = self.pool.step(action)
        none_left = np.zeros(len(rewards), np.int32)
        infos = {"reward": rewards, "lives": none_left, **infos, "terminated": terminated | truncated}
        return observations, rewards, terminated | truncated, infos

    def close(self):
        self.pool.close()


def make(name, *, env_type, num_envs, episodic_life, reward_clip, seed):
    """Return envpool's games; CartPole has neither lives nor rewards to clip."""
    atari = {"episodic_life": episodic_life, "reward_clip": reward_clip} if game == "pong" else {}
    return Pool(MAKE(name, env_type="gymnasium", num_envs=num_envs, seed=seed, **atari))


MAKE, envpool.make = envpool.make, make
sys.modules["gym"] = types.SimpleNamespace(Wrapper=Wrapper, spaces=gymnasium.spaces)
sys.modules["torch.utils.tensorboard"] = mock.MagicMock()
torch.set_num_threads(2)
head, body = (checkout / "ppo_atari_envpool.py").read_text().split(MAIN)
module = types.ModuleType("__main__")
sys.modules["__main__"] = module
names = vars(module)
names["__file__"] = str(checkout / "ppo_atari_envpool.py")
exec(compile(head, names["__file__"], "exec"), names)
if game == "cartpole":
    other = dict(names)
    exec(compile((checkout / "ppo.py").read_text().split(MAIN)[0], "ppo.py", "exec"), other)
    names["Agent"] = other["Agent"]
sys.argv = [names["__file__"], *OPTIONS, f"--total-timesteps={total}"]
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec(compile(MAIN.replace("__name__", '"__main__"') + body, names["__file__"], "exec"), names)
took = time.time() - names["start_time"]  # the file sets it before its first step
steps = names["args"].num_iterations * names["args"].batch_size
returns = [float(found) for found in re.findall(r"episodic_return=([-\d.]+)", printed.getvalue())][-LAST:]
print(json.dumps({"steps_per_s": steps / took, "return": sum(returns) / len(returns) if returns else None}))
