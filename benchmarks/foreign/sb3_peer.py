"""Stable-Baselines3's PPO, for `benchmarks.throughput`.

`python sb3_peer.py cartpole|pong|cartpole-defaults TOTAL_STEPS` runs by the Python of an environment with
stable-baselines3, ale-py and opencv. `cartpole-defaults` has the library's own settings: one environment, 2,048 steps,
minibatches of 64, ten epochs. It prints a line of JSON: steps_per_s of training after the first rollout, and the mean
return of the last episodes. Steps of Pong are the agent's: four frames each.
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
elif game == "cartpole":
    envs = make_vec_env("CartPole-v1", n_envs=ENVS)
    model = PPO("MlpPolicy", envs, n_steps=STEPS, batch_size=4096, n_epochs=4, device="cpu")
else:
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1"), device="cpu")
model.learn(model.n_envs * model.n_steps)
before, started = model.num_timesteps, time.perf_counter()
model.learn(total, reset_num_timesteps=False)
took = time.perf_counter() - started
returns = [episode["r"] for episode in model.ep_info_buffer]
mean = sum(returns) / len(returns) if returns else None
print(json.dumps({"steps_per_s": (model.num_timesteps - before) / took, "return": mean}))
