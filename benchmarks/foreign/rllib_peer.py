"""RLlib's PPO or IMPALA on Pong, for `benchmarks.throughput`: `python rllib_peer.py ppo|impala SECONDS`.

It runs by the Python of an environment with ray[rllib] and ale-py. It prints a line of JSON: the agent's steps a second
after the first iteration, and the mean return of the last one.
"""

import json
import sys
import time

import ale_py
import gymnasium
import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

SAMPLED = "num_env_steps_sampled_lifetime"


def make(_):
    gymnasium.register_envs(ale_py)
    return wrap_atari_for_new_api_stack(gymnasium.make("PongNoFrameskip-v4"), framestack=4)


ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
register_env("pong", make)
nature = DefaultModelConfig(
    conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]], conv_activation="relu", head_fcnet_hiddens=[512],
    vf_share_layers=True,
)  # fmt: skip
runners = {"num_env_runners": 2, "num_envs_per_env_runner": 8}
if sys.argv[1] == "ppo":
    config = PPOConfig().training(train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=4)
    runners["rollout_fragment_length"] = 128
else:
    config = IMPALAConfig().training(train_batch_size_per_learner=1024)
    runners["rollout_fragment_length"] = 64
algorithm = config.environment("pong").env_runners(**runners).rl_module(model_config=nature).build_algo()
result = algorithm.train()
before, started = result[SAMPLED], time.perf_counter()
while time.perf_counter() - started < float(sys.argv[2]):
    result = algorithm.train()
took = time.perf_counter() - started
mean = result.get("env_runners", {}).get("episode_return_mean")
print(json.dumps({"steps_per_s": (result[SAMPLED] - before) / took, "return": None if mean is None else float(mean)}))
