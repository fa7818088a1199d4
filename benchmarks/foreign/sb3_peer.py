"""Stable-Baselines3's PPO, for `benchmarks.throughput`: `python sb3_peer.py cartpole|pong TOTAL_STEPS`.

It runs by the Python of an environment with stable-baselines3, ale-py and opencv. It prints a line of JSON: steps_per_s
of training after the first rollout, and the mean return of the last episodes. Steps of Pong are the agent's: four
frames each.
"""

import json
import sys
import time

import ale_py
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

game, total = sys.argv[1], int(sys.argv[2])
ENVS, STEPS = 16 if game == "pong" else 128, 128  # as many as two of Warren's actors have
torch.set_num_threads(2)
if game == "pong":
    gymnasium.register_envs(ale_py)
    envs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=ENVS), 4)
    model = PPO("CnnPolicy", envs, n_steps=STEPS, batch_size=256, n_epochs=4, device="cpu")
else:
    envs = make_vec_env("CartPole-v1", n_envs=ENVS)
    model = PPO("MlpPolicy", envs, n_steps=STEPS, batch_size=4096, n_epochs=4, device="cpu")
model.learn(ENVS * STEPS)
before, started = model.num_timesteps, time.perf_counter()
model.learn(total, reset_num_timesteps=False)
took = time.perf_counter() - started
returns = [episode["r"] for episode in model.ep_info_buffer]
mean = sum(returns) / len(returns) if returns else None
print(json.dumps({"steps_per_s": (model.num_timesteps - before) / took, "return": mean}))
