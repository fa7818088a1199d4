"""Whether a backend decides as the policy does: both play through recorded observations, each with its own memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs import gamecore_actors
from warren.errors import ConfigurationError
from warren.trees import leaves, take
from workers.deployment.backends import Backend, PytorchBackend
from workers.deployment.exporting import listed
from workers.runtime.recorded import FILE, Recorded
from workers.runtime.trained import Trained

PLAYED = 1000  # steps of the environment, where nothing was recorded
AGREEMENT = 0.995  # share of the actions that have to be the same
CLOSE = 0.01  # continuous actions that differ by less, or by less of the action where it is above 1, are the same


@dataclass(frozen=True)
class Verdict:
    """`difference`: the largest between two outputs of the network; `agreement`: share of actions that are the same."""

    backend: str
    observations: int
    difference: float
    agreement: float

    def __str__(self) -> str:
        return (
            f"{self.backend} against pytorch on {self.observations:,} recorded observations: largest difference of an "
            f"output {self.difference:.2g}, same action {100 * self.agreement:.2f} %"
        )

    def check(self, least: float = AGREEMENT) -> None:
        """Raises ConfigurationError below an agreement of `least`."""
        if not self.agreement >= least:
            raise ConfigurationError(
                f"backend={self.backend}: refused. {self}; at least {100 * least:g} % are wanted "
                f"(agreement={least:g}). Serve this policy by backend=pytorch"
            )


def verify(backend: Backend, recorded: Recorded, mode: str = "sample", seed: int = 0) -> Verdict:
    """What `backend` and PyTorch make of the same observations, drawing with the same noise."""
    reference = PytorchBackend(backend.policy)
    generators = [torch.Generator().manual_seed(seed) for _ in range(2)]
    memories = [recorded.memory or reference.initial_memory(recorded.begins.shape[1]) for _ in range(2)]
    difference, same = 0.0, 0
    for step, begins in enumerate(recorded.begins):
        observation = take(recorded.observation, step)
        outputs, actions = [], []
        for which, one in enumerate((reference, backend)):
            before = {name: _begun(part, begins) for name, part in memories[which].items()}
            with torch.inference_mode():
                output, memories[which] = one.outputs(observation, before)
                chosen = one.policy.choose(output, mode, generators[which])
            outputs.append([part.numpy() for part in listed(output)])
            actions.append(one.policy.env_action(one.policy.distribution.numpy(chosen)))
        gaps = [float(np.abs(a - b).max()) for a, b in zip(*outputs, strict=True)]
        difference = max(difference, *(gap if np.isfinite(gap) else np.inf for gap in gaps))
        same += int(agreeing(*actions).sum())
    return Verdict(backend.name, recorded.observations, difference, same / recorded.observations)


def observations_of(trained: Trained, file: str | None = None) -> Recorded:
    """What a backend for a trained policy is verified on: `file`, else what the learner wrote, else
    what is seen in a game. Raises CheckpointError for the file, ConfigurationError where there is nothing.
    """
    own = trained.source.parents[1] / FILE
    if file is not None or own.is_file():
        return Recorded.read(own if file is None else Path(file), trained.policy)
    if trained.two_player or gamecore_actors.is_gamecore(trained.env_id):
        raise ConfigurationError(
            f"recorded: {own.parent} holds no {FILE} to verify a model on, and {trained.env_id} is not played from "
            "here; name such a file by recorded=FILE, or serve by backend=pytorch"
        )
    return Recorded.played(trained, PLAYED)


def agreeing(ones: Any, others: Any) -> np.ndarray:
    """bool [N]: whether the actions, as the action space has them, are the same in every part."""
    same = []
    for (_, one), (_, other) in zip(leaves(ones), leaves(others), strict=True):
        each = _close(one, other) if one.dtype.kind == "f" else one == other
        same.append(each.reshape(len(each), -1).all(1))
    all_same: np.ndarray = np.logical_and.reduce(same)
    return all_same


def _close(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    close: np.ndarray = np.abs(one - other) <= CLOSE * np.maximum(1.0, np.abs(one))
    return close


def _begun(memory: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """`memory` [N, ...], zeros where an episode begins."""
    begun: np.ndarray = np.where(begins.reshape(-1, *[1] * (memory.ndim - 1)), np.float32(0), memory)
    return begun
