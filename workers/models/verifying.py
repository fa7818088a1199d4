"""Check that a backend acts as the policy does: both play through recorded observations, each with its own memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete

from envs.one_agent import gamecore_actors
from warren.errors import CheckpointError, ConfigurationError
from warren.trees import leaves, take
from workers.models.backends import Backend, PytorchBackend
from workers.models.exporting import listed
from workers.models.processor import processor
from workers.runtime.observation_sample import FILE, ObservationSample
from workers.runtime.trained import Trained

PLAYED = 1000  # steps of the environment, if nothing was recorded
ALONE = 1000  # observations that are given one at a time
TOGETHER = 4  # copies of a lone slot, so that a pass holds several
AGREEMENT = 0.995  # share of the actions that have to be the same
MODES = ("sample", "greedy")  # modes of deciding
CLOSE = 0.01  # continuous actions are the same if they differ by at most this, or this part of an action above 1
LEGAL = 0.5  # share of the actions that a drawn mask allows


@dataclass(frozen=True)
class Verdict:
    """The result of a check. `difference`: the largest between two outputs of the network.

    `ways`: way of asking the backend -> share of actions that are the same; `agreement` is the lowest of these.
    """

    backend: str
    mode: str
    observations: int
    difference: float
    ways: dict[str, float]
    processor: str = field(default_factory=processor)

    @property
    def way(self) -> str:
        """The way of asking the backend in which the fewest actions agree."""
        return min(self.ways, key=self.ways.__getitem__)

    @property
    def agreement(self) -> float:
        """Share of actions that are the same, if asked in `way`."""
        return self.ways[self.way]

    @property
    def record(self) -> dict[str, Any]:
        """Return the facts about the check that a model's file holds."""
        return {
            "mode": self.mode,
            "agreement": self.ways,
            "difference": self.difference,
            "observations": self.observations,
            "processor": self.processor,
        }

    def __str__(self) -> str:
        where = "" if self.agreement == max(self.ways.values()) else f" where asked {self.way}"
        return (
            f"{self.backend} against pytorch on {self.observations:,} recorded observations: largest difference of an "
            f"output {self.difference:.2g}, same action {100 * self.agreement:.2f} %{where} (mode={self.mode}, on "
            f"{self.processor})"
        )

    def check(self, least: float = AGREEMENT) -> None:
        """Raise ConfigurationError below an agreement of `least`."""
        if not self.agreement >= least:
            raise ConfigurationError(
                f"backend={self.backend}: refused. {self}; at least {100 * least:g} % are wanted "
                f"(agreement={least:g}). Serve this policy by backend=pytorch"
            )


def verify(backend: Backend, recorded: ObservationSample, mode: str = "sample", seed: int = 0) -> Verdict:
    """Ask `backend` and PyTorch to act on the same observations, drawing with the same noise.

    They are asked in every way that games are served: with many observations per pass and with one. If the policy takes
    masks of legal actions, they are asked with masks (those that were recorded, or drawn ones) and without.
    """
    masks: list[np.ndarray | None] = [None]
    if isinstance(backend.policy.action_space, Discrete):
        masks.append(recorded.action_mask if recorded.action_mask is not None else _drawn(backend.policy, recorded))
    ways = {}
    for mask in masks:
        for passes, name in ((_together(recorded, mask), "together"), (_alone(recorded, mask), "one at a time")):
            same = [_agreeing_in(backend, each, mode, seed) for each in passes]
            ways[f"{name}{'' if mask is None else ', with masks'}"] = float(np.concatenate(same).mean())
    return Verdict(backend.name, mode, recorded.observations, _difference(backend, recorded), ways)


def observations_of(trained: Trained, file: str | None = None) -> ObservationSample:
    """Return the observations on which a backend for a trained policy is verified.

    They are those in `file`, else those that the learner wrote, else those of games played now. A league's player
    without a file of its own, such as a frozen one, gets those of the run's other players: they play the same game,
    unless their memory is different. Raises CheckpointError for the file, ConfigurationError if there are none.
    """
    if file is not None:
        return ObservationSample.read(Path(file), trained.policy)
    for place, folder in enumerate(trained.seen_in):
        try:
            if (folder / FILE).is_file():
                return ObservationSample.read(folder / FILE, trained.policy)
        except CheckpointError:
            if place == 0:
                raise
    if gamecore_actors.is_gamecore(trained.env_id):
        raise ConfigurationError(
            f"recorded: {trained.seen_in[0]} holds no {FILE} to verify a model on, and {trained.env_id} is not "
            "played from here; name such a file by recorded=FILE, or serve by backend=pytorch"
        )
    play = ObservationSample.of_two if trained.two_player else ObservationSample.played
    return play(trained, PLAYED)


def agreeing(ones: Any, others: Any) -> np.ndarray:
    """Return bool [N]: true where the actions, as the action space has them, are the same in every part."""
    same = []
    for (_, one), (_, other) in zip(leaves(ones), leaves(others), strict=True):
        each = _close(one, other) if one.dtype.kind == "f" else one == other
        same.append(each.reshape(len(each), -1).all(1))
    all_same: np.ndarray = np.logical_and.reduce(same)
    return all_same


def _together(recorded: ObservationSample, mask: np.ndarray | None) -> Iterator[ObservationSample]:
    """Yield all slots, for a pass to take together; a lone slot comes in several copies."""
    slots = recorded.begins.shape[1]
    yield recorded.slots(list(range(slots)) if slots > 1 else [0] * TOGETHER, mask)


def _alone(recorded: ObservationSample, mask: np.ndarray | None) -> Iterator[ObservationSample]:
    """Yield one slot after the other, up to ALONE observations."""
    steps, slots = recorded.begins.shape
    for slot in range(min(slots, max(1, ALONE // steps))):
        yield recorded.slots([slot], mask, ALONE)


def _agreeing_in(backend: Backend, recorded: ObservationSample, mode: str, seed: int) -> np.ndarray:
    """Return bool [T * N]: true where `act` of both gives the same action."""
    asked = (PytorchBackend(backend.policy), backend)
    generators = [torch.Generator().manual_seed(seed) for _ in asked]
    memories = [recorded.memory or one.initial_memory(recorded.begins.shape[1]) for one in asked]
    same = []
    for step, begins in enumerate(recorded.begins):
        observation = take(recorded.observation, step)
        legal = None if recorded.action_mask is None else recorded.action_mask[step]
        actions = []
        for which, one in enumerate(asked):
            before = _begun(memories[which], begins)
            action, memories[which] = one.act(observation, before, mode, generators[which], legal)
            actions.append(one.policy.env_action(action))
        same.append(agreeing(*actions))
    return np.concatenate(same)


def _difference(backend: Backend, recorded: ObservationSample) -> float:
    """Return the largest difference between outputs of the network, each side with the memory that it made itself."""
    asked = (PytorchBackend(backend.policy), backend)
    memories = [recorded.memory or one.initial_memory(recorded.begins.shape[1]) for one in asked]
    largest = 0.0
    for step, begins in enumerate(recorded.begins):
        outputs = []
        for which, one in enumerate(asked):
            with torch.inference_mode():
                output, memories[which] = one.outputs(take(recorded.observation, step), _begun(memories[which], begins))
            outputs.append([part.numpy() for part in listed(output)])
        gaps = [float(np.abs(a - b).max()) for a, b in zip(*outputs, strict=True)]
        largest = max(largest, *(gap if np.isfinite(gap) else np.inf for gap in gaps))
    return largest


def _drawn(policy: Any, recorded: ObservationSample) -> np.ndarray:
    """Return random masks bool [T, N, A] with one legal action at least."""
    shape, random = (*recorded.begins.shape, int(policy.action_space.n)), np.random.default_rng(0)
    legal = random.random(shape) < LEGAL
    np.put_along_axis(legal, random.integers(0, shape[-1], (*shape[:-1], 1)), True, axis=-1)
    return legal


def _close(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    close: np.ndarray = np.abs(one - other) <= CLOSE * np.maximum(1.0, np.abs(one))
    return close


def _begun(memory: dict[str, np.ndarray], begins: np.ndarray) -> dict[str, np.ndarray]:
    """Return `memory`, each part [N, ...], with zeros where an episode begins."""
    return {
        name: np.where(begins.reshape(-1, *[1] * (part.ndim - 1)), np.float32(0), part) for name, part in memory.items()
    }
