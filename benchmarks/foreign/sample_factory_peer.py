"""Sample Factory's APPO on CartPole-v1, for `benchmarks.throughput`.

`python sample_factory_peer.py SECONDS [NAME=VALUE ...]` replaces settings below by those given. It runs by the Python
of an environment with sample-factory. It logs its rates itself ("Fps is"): steps of the environment here, as frames
are not skipped.
"""

import sys
import tempfile

import gymnasium
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


def make(name, config, env_config, render_mode=None):
    return gymnasium.make("CartPole-v1")


if __name__ == "__main__":
    register_env("cartpole", make)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "env": "cartpole", "algo": "APPO", "device": "cpu", "num_workers": 2, "num_envs_per_worker": 16,
            "worker_num_splits": 2, "rollout": 64, "batch_size": 1024, "num_batches_per_epoch": 2,
            "train_for_seconds": sys.argv[1], "train_dir": folder, "experiment": "peer", "normalize_input": False,
            "use_rnn": False, "serial_mode": False, "async_rl": True,
        }  # fmt: skip
        settings |= dict(each.split("=", 1) for each in sys.argv[2:])
        arguments = [*(f"--{name}={value}" for name, value in settings.items()), "--encoder_mlp_layers", "64", "64"]
        parser, _ = parse_sf_args(arguments)
        run_rl(parse_full_cfg(parser, arguments))
