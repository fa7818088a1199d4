"""One run of Warren's whole distributed job, as a person would start it: launcher, learner, actors, broker, Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from hydra.core.global_hydra import GlobalHydra

import envs
from agents import build_policy, checkpoints
from benchmarks.apparatus.curves import Curve
from workers.config.schema import CONF, Config, from_hydra, from_yaml
from workers.learning.metrics import read_metrics


def composed(overrides: Sequence[str]) -> Config:
    """Return the configuration of `python -m workers.train OVERRIDES`. Raises Hydra's errors for wrong ones."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            return from_hydra(hydra.compose("train", list(overrides)))
        finally:
            GlobalHydra.instance().clear()


def train(
    folder: Path, trial: str, overrides: Sequence[str], servers: Mapping[str, str], patience: float
) -> tuple[dict[str, Any], Curve]:
    """Return (outcome.json, the curve) of a run in FOLDER/learning/TRIAL; `servers`: environment variables with URLs.

    Ends this program if the run fails, or takes longer than `patience` seconds.
    """
    command = [sys.executable, "-m", "workers.train", *overrides, f"folder={folder}", "project=learning"]
    try:
        done = subprocess.run(
            [*command, f"trial={trial}"],
            env={**os.environ, **servers}, timeout=patience, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        sys.exit(f"{trial} took longer than {patience:g} s")
    if done.returncode != 0:
        sys.exit(f"{trial} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    run = folder / "learning" / trial
    outcome: dict[str, Any] = json.loads((run / "outcome.json").read_text())
    return outcome, [(p["steps"], p["mean_return"]) for p in read_metrics(run) if p["mean_return"] is not None]


EVERY_CHECKPOINT = ("checkpoint_every=0.001", "checkpoints_kept=100000")  # one per update, all kept
EPISODES = 20  # episodes of an evaluation


def evaluated(run: Path, goal: float) -> Curve:
    """Return (steps, mean return of EPISODES episodes, actions drawn) per checkpoint, up to the first at the goal.

    The mean of the last 100 training episodes cannot show a student that is good at once: in CartPole it takes 50,000
    steps to play them. The likeliest actions would not do either: even those of hardly trained weights balance.
    """
    config = from_yaml(run / "config.yaml")
    policy = build_policy(config.network, *envs.spaces(config.env.settings()), 0)
    curve: list[tuple[int, float]] = []
    for path in sorted((run / "checkpoints").glob("*.safetensors")):
        checkpoint = checkpoints.load(path)
        checkpoints.load_weights(policy, checkpoint.policy)
        policy.generator.manual_seed(0)
        games = envs.make_vector(config.env.settings(), EPISODES, seed=10_000)
        first = np.full(EPISODES, np.nan)
        so_far, (observation, _) = np.zeros(EPISODES), games.reset()
        while np.isnan(first).any():
            action = policy.step(observation, value=False).action
            observation, reward, terminated, truncated, _ = games.step(policy.env_action(action))
            so_far += reward
            ended = (terminated | truncated) & np.isnan(first)
            first[ended] = so_far[ended]
        games.close()
        curve.append((int(checkpoint.meta["step"]), float(first.mean())))
        if curve[-1][1] >= goal:
            break
    return curve
