"""RLlib's env runners on an environment of 20 ms a step: `python rllib_served_peer.py RUNNERS COPIES LENGTH SECONDS`.

For `benchmarks.served`, by the Python of an environment with ray[rllib]. The runners sample without a pause, and return
their samples; nothing learns. It prints a line of JSON: environment steps a second, once each runner has answered.
"""

import json
import sys
import time
from pathlib import Path

import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

sys.path.append(str(Path(__file__).resolve().parents[1] / "apparatus"))
from null_env import SlowVectorEnv

RUNNERS, COPIES, LENGTH = map(int, sys.argv[1:4])


class Slow(SlowVectorEnv):
    """RLlib's runners take a step of their own for an episode's reset."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def step(self, actions):
        return *super().step(actions)[:4], {}


ray.init(num_cpus=RUNNERS + 2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
register_env("slow", lambda given: Slow(given.get("num_envs", 1)))
config = (
    PPOConfig()
    .environment("slow", observation_space=Slow(1).single_observation_space, action_space=Slow(1).single_action_space)
    .env_runners(
        num_env_runners=RUNNERS,
        num_envs_per_env_runner=COPIES,
        rollout_fragment_length=LENGTH,
        gym_env_vectorize_mode="vector_entry_point",
    )
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
    .training(train_batch_size_per_learner=RUNNERS * COPIES * LENGTH)
)
algorithm = config.build_algo()
group = algorithm.env_runner_group
heard, steps, started = set(), 0, None
group.foreach_env_runner_async("sample")
while started is None or time.perf_counter() - started < float(sys.argv[4]):
    for runner, episodes in group.fetch_ready_async_reqs(timeout_seconds=0.1):
        group.foreach_env_runner_async("sample", remote_worker_ids=[runner])
        heard.add(runner)
        if started is None and len(heard) == RUNNERS:
            started = time.perf_counter()
        elif started is not None:
            steps += sum(len(episode) for episode in episodes)
print(json.dumps({"steps_per_s": steps / (time.perf_counter() - started), "return": None}))
