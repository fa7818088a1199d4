"""PureJaxRL's PPO on CartPole-v1, for `benchmarks.throughput`: game and learner compiled together.

`python purejaxrl_peer.py CHECKOUT/purejaxrl ENVS STEPS EPOCHS LEARNING_RATE TOTAL`, by the Python of an environment
with jax, gymnax, flax, optax and distrax. It prints a line of JSON: steps_per_s without the compilation, and the last
return.

Its ppo.py runs unchanged. Two things around it are newer: its wrappers.py imports brax and navix, which CartPole does
not need and which are replaced by empty modules, and gymnax's step returns terminated and truncated apart.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path
from unittest import mock

import gymnax
import jax

checkout = Path(sys.argv[1])
envs, steps, epochs, total = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(float(sys.argv[6]))
for absent in ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix"):
    sys.modules[absent] = mock.MagicMock()


class OneDone:
    """A gymnax environment whose step returns one `done`."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)

    def step(self, *arguments):
        observation, state, reward, *ends, info = self.env.step(*arguments)
        return observation, state, reward, ends[0] if len(ends) == 1 else ends[0] | ends[1], info


def make(name, **kwargs):
    env, parameters = MAKE(name, **kwargs)
    return OneDone(env), parameters


MAKE, gymnax.make = gymnax.make, make
sys.path.insert(0, str(checkout))
spec = importlib.util.spec_from_file_location("purejaxrl_ppo", checkout / "ppo.py")
ppo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ppo)
config = {
    "LR": float(sys.argv[5]),
    "NUM_ENVS": envs,
    "NUM_STEPS": steps,
    "TOTAL_TIMESTEPS": total,
    "UPDATE_EPOCHS": epochs,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
    "DEBUG": False,
}
train = jax.jit(ppo.make_train(config)).lower(jax.random.PRNGKey(30)).compile()
started = time.perf_counter()
result = jax.block_until_ready(train(jax.random.PRNGKey(30)))
took = time.perf_counter() - started
done = total // (envs * steps) * envs * steps
last = float(result["metrics"]["returned_episode_returns"][-1].mean())
print(json.dumps({"steps_per_s": done / took, "return": last}))
