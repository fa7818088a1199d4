"""The speed of whole training runs beside peers.

`python -m benchmarks.throughput --peers DIR --purejaxrl CHECKOUT --cleanrl CHECKOUT`

Warren trains as a person starts it, through RabbitMQ and Redis; the rate is that of all environment steps over the time
from the first of them to the end of the last update. Peers run in turn with it, `--rounds` times; ratios are those of a
round, and the median is reported, with the final mean return, as a rate without learning would say nothing. Parts
(`--only`):

cartpole  64 environments an actor x 128 steps, four epochs of four minibatches: PureJaxRL, Stable-Baselines3, CleanRL
          on envpool, Sample Factory; us of CPU time a step of each part; limit_fraction: the products' operations a
          second over those of a bare product on all cores
own       CartPole beside peers at settings of their own, and Sample Factory at four
pong      Nature CNN, standard preprocessing, steps of the agent: four epochs a sample beside the PPO of
          Stable-Baselines3, CleanRL on envpool and RLlib, one beside RLlib's IMPALA
pipeline  an environment and an algorithm that do nothing: what remains is the policy, the wire, and the hand-overs
start     `make train`: seconds from the first step to 475, and of the whole command with servers of its own
slow      a learner slowed ten times: do actors wait, does memory stay flat, is every segment accounted for?
upkeep    ms of a core per second that a run's processes use while they wait for slow environments

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.apparatus.jobs import PARTS as PARTS_OF_RUNS
from benchmarks.apparatus.jobs import Job, own_servers, train
from benchmarks.apparatus.limits import gflops
from benchmarks.apparatus.ratios import with_intervals
from benchmarks.apparatus.report import finish
from benchmarks.throughput import peers
from benchmarks.throughput.peers import Peer, Ran
from benchmarks.throughput.waiting import slow, upkeep

APPARATUS = Path(__file__).resolve().parents[1] / "apparatus"
PARTS = ("cartpole", "own", "pong", "pipeline", "start", "slow", "upkeep")
TARGETS = {
    "cartpole_vs_purejaxrl": (">=", 1.1),
    "cartpole_vs_sb3": (">=", 8.0),
    "cartpole_vs_envpool_cleanrl": (">=", 1.5),
    "cartpole_vs_sample_factory": (">=", 6.0),
    "limit_fraction": (">=", 0.5),
    "pong_vs_best_peer": (">=", 1.4),
    "pipeline_streaming": (">=", 400_000),
    "seconds_to_475": ("<=", 3.0),
    "seconds_whole_command": ("<=", 8.0),
    "data_age_median": ("<=", 2.0),
}
CARTPOLE_STEPS, PONG_STEPS, PIPELINE_STEPS = 4_000_000, 24_576, 12_000_000
# Operations of products per step of CartPole, for two networks of 64 x 64: one pass to act; in four epochs one pass
# forward and two back each, except the first layers' gradients with respect to observations.
_FORWARD = 2 * sum(4 * 64 + 64 * 64 + 64 * outputs for outputs in (2, 1))
CARTPOLE_FLOP = _FORWARD + 4 * (3 * _FORWARD - 2 * 2 * 4 * 64)
PEER_SECONDS = 40  # s for peers that are given seconds, not steps
Train = Callable[..., Job]


def main() -> int:
    """Run the parts, print a line per run, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peers", type=Path, metavar="DIR", help="of the peers' environments: DIR/jax, DIR/ray, DIR/sf"
    )
    parser.add_argument("--purejaxrl", type=Path, metavar="CHECKOUT", help="of luchris429/purejaxrl")
    parser.add_argument("--cleanrl", type=Path, metavar="CHECKOUT", help="of vwxyzjn/cleanrl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=5, help="of the part `start`")
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    figures: dict[str, Any] = {"rounds": options.rounds}
    work = {"cartpole": cartpole, "own": own, "pong": pong, "pipeline": pipeline, "slow": slow, "upkeep": upkeep}
    parts = options.only or PARTS
    if any(part != "start" for part in parts):
        with own_servers() as (folder, urls):

            def job(trial: str, *overrides: str) -> Job:
                return train(folder, trial, overrides, urls)

            for part in parts:
                if part != "start":
                    figures |= work[part](job, options)
    if "start" in parts:
        with tempfile.TemporaryDirectory(prefix="warren-bench-") as name:
            figures |= start(Path(name), options.seeds)
    for name, (sign, target) in TARGETS.items():
        if name in figures:
            print(f"{name}: {figures[name]} (target {sign} {target})", flush=True)
    finish("throughput", figures)
    return 0


# The parts.


def cartpole(job: Train, options: argparse.Namespace) -> dict[str, Any]:
    """Train on CartPole-v1 to the end of the steps; solved if the last 100 episodes reach 475."""
    others = {
        "sb3": peers.stable_baselines3("cartpole", 400_000),
        **_cleanrl(options, "cartpole", 400_000),
        "sample_factory": peers.sample_factory(PEER_SECONDS),
    }
    if options.purejaxrl is None:
        print("PureJaxRL: left out, no --purejaxrl CHECKOUT", flush=True)
    else:
        others = {"purejaxrl": peers.purejaxrl(options.purejaxrl, CARTPOLE_STEPS)} | others
    jobs: list[Job] = []

    def warren(turn: int) -> Ran:
        jobs.append(_on_cartpole(job, "cartpole", turn))
        return Ran(jobs[-1].steps_per_s, jobs[-1].outcome["mean_return"])

    figures = compared("cartpole", warren, others, options)
    gflop = CARTPOLE_FLOP * figures["cartpole_steps_per_s"]["warren"] / 1e9
    return figures | {
        "data_age_median": round(statistics.median(each.data_age for each in jobs), 2),
        "cartpole_us_a_step": {
            part: round(statistics.median(each.cpu_s[part] / each.outcome["steps"] for each in jobs) * 1e6, 2)
            for part in PARTS_OF_RUNS
        },
        "limit_fraction": round(gflop / gflops(os.cpu_count() or 1), 3),
    }


def _on_cartpole(job: Train, trial: str, turn: int) -> Job:
    return job(
        f"{trial}-{turn}", "env=cartpole", "env.num_envs=64", "env.goal=null", "sampling=streaming",
        "actors=2", "unroll_length=128", "algorithm.epochs=4", "algorithm.minibatch_size=4096",
        "algorithm.learning_rate=2.5e-3", f"algorithm.anneal_steps={CARTPOLE_STEPS}",
        "algorithm.entropy_coefficient=0.01", f"total_steps={CARTPOLE_STEPS}", f"seed={turn}",
    )  # fmt: skip


def own(job: Train, options: argparse.Namespace) -> dict[str, Any]:
    """Train on CartPole-v1 beside peers as their authors set them, and Sample Factory at four settings."""
    as_warren = ("num_envs_per_worker=64", "rollout=128", "batch_size=4096", "num_batches_per_epoch=4", "num_epochs=4")
    others = {
        "sb3_defaults": peers.stable_baselines3("cartpole-defaults", 40_000),
        "sample_factory": peers.sample_factory(PEER_SECONDS),
        "sample_factory_defaults": peers.sample_factory(PEER_SECONDS, "num_envs_per_worker=2", "rollout=32"),
        "sample_factory_as_warren": peers.sample_factory(PEER_SECONDS, *as_warren),
        "sample_factory_serial": peers.sample_factory(PEER_SECONDS, *as_warren, "serial_mode=True", "async_rl=False"),
    }
    if options.purejaxrl is not None:
        others["purejaxrl_own"] = peers.purejaxrl(options.purejaxrl, 500_000, envs=4, learning_rate=2.5e-4)

    def warren(turn: int) -> Ran:
        done = _on_cartpole(job, "own", turn)
        return Ran(done.steps_per_s, done.outcome["mean_return"])

    return compared("own", warren, others, options)


def pong(job: Train, options: argparse.Namespace) -> dict[str, Any]:
    """Compare PPO with PPO, IMPALA with IMPALA; the lower of the two ratios to the best peer counts."""
    shared = (
        "env.id=PongNoFrameskip-v4", "env.preprocessing=atari", "env.goal=null", "env.num_envs=8", "actors=2",
        "network=nature_cnn", "sampling=streaming", f"total_steps={PONG_STEPS}",
        "learner_threads=2",  # the update is 95 % of the time; peers have two threads as well
    )  # fmt: skip

    def ppo(turn: int) -> Ran:
        done = job(
            f"pong-ppo-{turn}", *shared, "unroll_length=128", "algorithm.epochs=4", "algorithm.minibatch_size=256",
            "algorithm.learning_rate=2.5e-4", f"seed={turn}",
        )  # fmt: skip
        return Ran(done.steps_per_s, done.outcome["mean_return"])

    def impala(turn: int) -> Ran:
        done = job(f"pong-impala-{turn}", *shared, "algorithm=impala", "unroll_length=64", f"seed={turn}")
        return Ran(done.steps_per_s, done.outcome["mean_return"])

    one = compared(
        "pong_ppo",
        ppo,
        {
            "sb3": peers.stable_baselines3("pong", 12_288),
            **_cleanrl(options, "pong", 12_288),
            "rllib": peers.rllib("ppo", PEER_SECONDS),
        },
        options,
    )
    two = compared("pong_impala", impala, {"rllib": peers.rllib("impala", PEER_SECONDS)}, options)
    ratios = [value for name, value in (one | two).items() if "_vs_" in name]
    return one | two | ({"pong_vs_best_peer": min(ratios)} if ratios else {})


def pipeline(job: Train, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a run without playing or learning: policies act, segments travel, weights come back."""
    rates = []
    for turn in range(options.rounds):
        done = job(
            f"pipeline-{turn}", f"env.id={APPARATUS / 'null_env.py'}:NullVectorEnv", "env.num_envs=256",
            f"algorithm.name={APPARATUS / 'null_algorithm.py'}:build", "sampling=streaming", "actors=2",
            "env.goal=null", "unroll_length=128", f"total_steps={PIPELINE_STEPS}",
        )  # fmt: skip
        rates.append(done.steps_per_s)
        print(f"pipeline alone: {rates[-1]:,.0f} steps/s", flush=True)
    return {"pipeline_streaming": round(statistics.median(rates))}


def start(folder: Path, seeds: int) -> dict[str, Any]:
    """Run the README's command, which starts and stops servers of its own."""
    to_475: dict[str, list[float]] = {}
    whole: list[float] = []
    for seed in range(1, seeds + 1):
        for sampling in ("gathered", "streaming"):
            done = train(folder, f"start-{sampling}-{seed}", (f"sampling={sampling}", f"seed={seed}"), {})
            solved = done.outcome["state"] == "solved"
            to_475.setdefault(sampling, []).append(done.outcome["seconds"] if solved else float("inf"))
            if sampling == "gathered":
                whole.append(done.whole_s)
            print(
                f"{sampling}, seed {seed}: {done.outcome['state']} after {done.outcome['seconds']:.1f} s, "
                f"{done.outcome['steps']:,} steps; the whole command {done.whole_s:.1f} s",
                flush=True,
            )
    medians = {sampling: round(statistics.median(seconds), 2) for sampling, seconds in to_475.items()}
    return {
        "seconds_to_475": max(medians.values()),
        "seconds_to_475_by_sampling": medians,
        "seconds_whole_command": round(statistics.median(whole), 2),
    }


# Beside peers.


def compared(
    name: str, warren: Callable[[int], Ran], others: dict[str, Peer], options: argparse.Namespace
) -> dict[str, Any]:
    """Run all in turn, round by round; return rates, returns, and the ratio to each peer, with its interval."""
    here: dict[str, Peer] = {}
    for key, peer in others.items():
        if missing := peer.missing(options.peers):
            print(missing, flush=True)
        else:
            here[key] = peer
    runs: dict[str, list[Ran]] = {}
    for turn in range(1, options.rounds + 1):
        for key, run in {"warren": warren, **{key: _runner(peer, options.peers) for key, peer in here.items()}}.items():
            ran = run(turn)
            runs.setdefault(key, []).append(ran)
            last = "none yet" if ran.mean_return is None else f"{ran.mean_return:.1f}"
            print(f"{name}, round {turn}: {key} {ran.steps_per_s:,.0f} steps/s, mean return {last}", flush=True)
    figures: dict[str, Any] = {
        f"{name}_steps_per_s": {
            key: round(statistics.median(ran.steps_per_s for ran in each)) for key, each in runs.items()
        },
        f"{name}_returns": {key: [ran.mean_return for ran in each] for key, each in runs.items()},
    }
    ratios = {
        f"{name}_vs_{key}": [a.steps_per_s / b.steps_per_s for a, b in zip(runs["warren"], runs[key], strict=True)]
        for key in here
    }
    return figures | with_intervals(ratios)


def _cleanrl(options: argparse.Namespace, game: str, total: int) -> dict[str, Peer]:
    if options.cleanrl is None:
        print("CleanRL: left out, no --cleanrl CHECKOUT", flush=True)
        return {}
    return {"envpool_cleanrl": peers.cleanrl(options.cleanrl, game, total)}


def _runner(peer: Peer, folder: Path) -> Callable[[int], Ran]:
    return lambda turn: peer.run(folder)


if __name__ == "__main__":
    raise SystemExit(main())
