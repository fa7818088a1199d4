"""Does it learn? Warren's whole distributed job beside a peer at equal settings, several seeds, curves as a picture.

`python -m benchmarks.learning cartpole [--seeds 5] [--sampling gathered streaming] [--broker private]`: environment
steps until the mean return of the last 100 training episodes reaches 475, for Warren (learner, two actors, RabbitMQ,
Redis) and for Stable-Baselines3's PPO with the same settings, environments and rollout length, one seed after the
other in turn. JSON: solved (of the seeds), steps_vs_peer (ratio of the medians; below 1: fewer steps than the peer).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from benchmarks.ppo import ACTORS, UNROLL_LENGTH, learn_stable_baselines3
from benchmarks.report import finish
from workers import servers
from workers.learning.metrics import read_metrics

CONF = Path(__file__).resolve().parent.parent / "conf"
LIMIT = 300_000  # environment steps after which a run counts as not solved
PATIENCE = 300.0  # s
Curve = list[tuple[int, float]]


def warren(folder: Path, environment: dict[str, str], sampling: str, seed: int) -> tuple[dict[str, Any], Curve]:
    """One whole job, as a person would start it: (its outcome.json, its curve)."""
    trial = f"{sampling}-{seed}"
    command = [
        *(sys.executable, "-m", "workers.train", f"folder={folder}", "project=learning", f"trial={trial}"),
        *(f"sampling={sampling}", f"seed={seed}", f"actors={ACTORS}", f"unroll_length={UNROLL_LENGTH}"),
        f"total_steps={LIMIT}",
    ]
    done = subprocess.run(
        command, env={**os.environ, **environment}, timeout=PATIENCE, capture_output=True, text=True, check=False
    )
    run = folder / "learning" / trial
    if done.returncode != 0:
        sys.exit(f"seed {seed} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    outcome: dict[str, Any] = json.loads((run / "outcome.json").read_text())
    return outcome, [(p["steps"], p["mean_return"]) for p in read_metrics(run) if p["mean_return"] is not None]


def stable_baselines3(seed: int) -> tuple[int | None, float, Curve]:
    """One run of the peer in a process of its own: (steps to the goal or None, seconds, curve)."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_stable_baselines3, (seed,))


def _stable_baselines3(seed: int) -> tuple[int | None, float, Curve]:
    import torch

    torch.set_num_threads(1)
    curve: Curve = []
    env = OmegaConf.to_container(OmegaConf.load(CONF / "env" / "cartpole.yaml"))
    algorithm = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / "ppo.yaml"))
    outcome = learn_stable_baselines3(env, algorithm, LIMIT, seed, on_rollout=lambda *point: curve.append(point))
    return outcome.steps, outcome.seconds, curve


def draw(path: Path, curves: dict[str, list[Curve]], goal: float) -> None:
    """Every seed's curve, a colour a system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for color, (name, runs) in zip(("tab:blue", "tab:orange", "tab:gray"), curves.items(), strict=False):
        for index, run in enumerate(runs):
            label = f"{name}, {len(runs)} seeds" if index == 0 else None
            axes.plot([p[0] for p in run], [p[1] for p in run], color=color, alpha=0.7, linewidth=1.3, label=label)
    axes.axhline(goal, color="tab:green", linestyle="--", linewidth=1, label=f"solved: {goal:g}")
    axes.set(
        title="CartPole-v1, PPO at equal settings",
        xlabel="environment steps",
        ylabel="mean return of the last 100 training episodes",
    )
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def cartpole(options: argparse.Namespace) -> None:
    """Run all seeds and print the figures."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in [*options.sampling, "stable_baselines3"]}
    curves: dict[str, list[Curve]] = {name: [] for name in results}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with servers.acquire(options.broker, folder=folder / "servers", say=lambda line: print(line)) as found:
            for seed in range(1, options.seeds + 1):
                for sampling in options.sampling:
                    outcome, curve = warren(folder, found.environment(), sampling, seed)
                    steps = outcome["steps"] if outcome["state"] == "solved" else None
                    results[sampling].append({"steps": steps, "seconds": round(outcome["seconds"], 1)})
                    curves[sampling].append(curve)
                peer_steps, peer_seconds, curve = stable_baselines3(seed)
                results["stable_baselines3"].append({"steps": peer_steps, "seconds": round(peer_seconds, 1)})
                curves["stable_baselines3"].append(curve)
                print(f"seed {seed}: " + ", ".join(f"{name} {runs[-1]}" for name, runs in results.items()), flush=True)
    medians = {name: statistics.median(run["steps"] or LIMIT for run in runs) for name, runs in results.items()}
    if options.picture is not None:
        titles = {"stable_baselines3": "Stable-Baselines3"}
        named = {titles.get(name, f"Warren, {name}"): runs for name, runs in curves.items()}
        draw(options.picture, named, 475)
    solved = {name: sum(run["steps"] is not None for run in runs) for name, runs in results.items()}
    first = options.sampling[0]
    finish(
        "learning cartpole",
        {
            "solved": min(solved[name] for name in options.sampling),  # of `seeds`, by the worse sampling mode
            "solved_by": solved,
            "seeds": options.seeds,
            "steps_vs_peer": round(medians[first] / medians["stable_baselines3"], 3),
            "steps_vs_peer_by_sampling": {
                name: round(medians[name] / medians["stable_baselines3"], 3) for name in options.sampling
            },
            "median_steps": medians,
            "median_seconds": {
                name: statistics.median(run["seconds"] for run in runs) for name, runs in results.items()
            },
            "runs": results,
        },
    )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=["cartpole"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sampling", nargs="+", choices=["gathered", "streaming"], default=["gathered", "streaming"])
    parser.add_argument("--broker", choices=servers.MODES, default="auto")
    parser.add_argument("--picture", type=Path, help="write the curves there as a PNG")
    cartpole(parser.parse_args())


if __name__ == "__main__":
    main()
