"""Updates and decisions on a GPU, beside the same on the CPU.

`python -m benchmarks.device [--device cuda] [--rounds 10] [--only ppo_images together equal] [--ways plain]`. Parts:

ppo_perceptron, ppo_lstm, ppo_images, sac_perceptron   one update, as a learner makes it, on the CPU and on the
            device: as it is, without CUDA graphs, compiled, in bfloat16, and both; ms
decisions   a served actor's call for many environments of 84 x 84 x 4 pixels; us
together    one update of 1, 4, 16 and 64 players of Leduc poker, each with a batch of its own; ms of all of them, and
            those of 64 over those of one
parts       the same of 1 and 64 on the device, by parts: looking which can be stacked, all before the first minibatch,
            the minibatches, and the end; ms
equal       the largest difference of weights after the same updates on the device and on the CPU

Medians of the clock's time until the device is done, on random experience. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, Space

from agents import Batch, Policy, Trajectory, build_algorithm, build_policy, computing, devices
from agents.algorithms import captured
from agents.algorithms.ppo import stacked_steps
from agents.algorithms.together import update_together
from agents.native.library import lacking
from benchmarks.apparatus.report import finish
from benchmarks.apparatus.timing import WARM_UP, milliseconds
from benchmarks.device_players import equal_players, parts_of_together, stacked_on, together
from warren.errors import ConfigurationError

IMAGES, NUMBERS = Box(0, 255, (4, 84, 84), np.uint8), Box(-1, 1, (8,), np.float32)
CALLS = (64, 512)  # environments of a served actor's call
DECISIONS_A_ROUND = 20
BEFORE_GRAPHS = 20  # updates before those that are timed, where an update is one step: graphs are made by then
COMPARED = 20  # updates of SAC that are compared; the last of them are made by a graph
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without_graphs": {"graphs": False},
    "compiled": {"compiled": True},
    "bfloat16": {"precision": torch.bfloat16},
    "both": {"compiled": True, "precision": torch.bfloat16},
}


@dataclass(frozen=True)
class Case:
    """One update of an algorithm and a network, on `steps` of `envs` environments."""

    algorithm: str
    observation: Space[Any]
    action: Space[Any]
    steps: int
    envs: int
    network: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warm_up: int = WARM_UP

    def policy(self) -> Policy:
        """Return a policy that has learned nothing."""
        return build_policy(self.network, self.observation, self.action, 1)


FOUR = {"minibatch_size": 4096, "epochs": 4}
CONVOLUTIONS = {"name": "nature_cnn", "hidden_size": 512}
CONTINUOUS = {"value": False, "box_actions": {"squashed": True, "state_std": True}, "hidden_sizes": [256, 256]}
CASES = {
    "ppo_perceptron": Case("ppo", NUMBERS, Discrete(4), 128, 128, settings=FOUR),
    "ppo_lstm": Case("ppo", NUMBERS, Discrete(4), 128, 128, {"core": {"name": "lstm", "size": 64}}, FOUR),
    "ppo_images": Case("ppo", IMAGES, Discrete(6), 128, 8, CONVOLUTIONS, {"minibatch_size": 256, "epochs": 4}),
    "sac_perceptron": Case("sac", NUMBERS, Box(-1, 1, (2,), np.float32), 1, 256, CONTINUOUS, warm_up=BEFORE_GRAPHS),
}


def experience(policy: Policy, steps: int, envs: int) -> Trajectory:
    """Return random observations, the actions of `policy` at them, and random rewards."""
    random = np.random.default_rng(1)
    shape = (steps, envs)
    observation = observations(policy.observation_space, shape)
    memory, acted = policy.initial_memory(envs), []
    for now in observation:
        acted.append(step := policy.step(now, memory))
        memory = step.memory
    none = np.zeros(shape, np.bool_)
    ended = random.random(shape) < 0.01
    return Trajectory(
        observation=observation,
        action=np.stack([step.action for step in acted]),
        reward=random.normal(size=shape).astype(np.float32),
        terminated=ended,
        truncated=none,
        extras={name: np.stack([step.extras[name] for step in acted]) for name in acted[0].extras},
        last={"observation": observation[0], "value": np.zeros(envs, np.float32)},
        cut={"value": np.zeros(shape, np.float32)},
        version=np.zeros(envs, np.int64),
        episodes=np.zeros((0, 2), np.float32),
        memory={name: part.numpy() for name, part in policy.initial_memory(envs).items()},
    )


def observations(space: Space[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return random observations, [*shape, ...]."""
    assert isinstance(space, Box)
    random = np.random.default_rng(2)
    if space.dtype == np.uint8:
        return random.integers(0, 256, (*shape, *space.shape), np.uint8)
    return random.normal(size=(*shape, *space.shape)).astype(np.float32)


def updates(case: Case, device: torch.device, rounds: int) -> dict[str, float]:
    """Return ms of one update on the CPU, and on the device in all ways that it supports."""
    found = {}
    for name, ways in (("cpu", {"plain": {}}), (device.type, WAYS)):
        for way, settings in ways.items():
            given = {key: value for key, value in settings.items() if key != "graphs"}
            where = torch.device("cpu") if name == "cpu" else device
            precision = "bfloat16" if "precision" in given else "float32"
            if list(computing.problems(precision, "compiled" in given, where)):
                continue
            if "graphs" in settings and where.type not in captured.GRAPHED:
                continue
            policy = case.policy()
            batch = Batch([experience(policy, case.steps, case.envs)])
            policy.to(where).set_learning_precision(**given)
            algorithm = build_algorithm(case.algorithm, {**case.settings, "learning_rate": 1e-6}, policy, 1)
            label = name if way == "plain" else f"{name}_{way}"
            with graphs(settings.get("graphs", True)):
                work = partial(update_together, [algorithm], [batch])
                found[f"{label}_ms"] = milliseconds(work, where, rounds, case.warm_up)
    return found


@contextmanager
def graphs(wanted: bool) -> Iterator[None]:
    """Let no graph be made or launched meanwhile, unless it is `wanted`."""
    least = captured.LEAST
    captured.LEAST = least if wanted else sys.maxsize
    stacked_steps.forget()
    try:
        yield
    finally:
        captured.LEAST = least
        stacked_steps.forget()


def decisions(device: torch.device, rounds: int) -> dict[str, float]:
    """Return us of a call for CALLS environments, on the CPU and on the device."""
    found = {}
    for envs in CALLS:
        now = observations(IMAGES, (envs,))
        for where in (torch.device("cpu"), device):
            policy = CASES["ppo_images"].policy().to(where)
            took = milliseconds(partial(policy.step, now), where, rounds * DECISIONS_A_ROUND)
            found[f"{where.type}_{envs}_us"] = round(1e3 * took, 1)
    return found


def parts(device: torch.device, rounds: int) -> dict[str, float]:
    """Return ms of the parts of an update of stacked players; {} where they are not stacked."""
    return parts_of_together(device, rounds) if stacked_on(device) else {}


def equal(device: torch.device, rounds: int) -> dict[str, float]:
    """Return how far weights on the device are from those on the CPU."""
    found = {f"players_{name}": value for name, value in equal_players(device).items()}
    return found | {f"sac_{name}": value for name, value in equal_sac(device).items()}


def equal_sac(device: torch.device) -> dict[str, float]:
    """Return the largest difference of the policy's weights after updates of SAC on the device and on the CPU.

    Both draw the same noise. TF32 is off. `moved`: the largest change of a weight.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    case, ended = CASES["sac_perceptron"], []
    batch = Batch([experience(case.policy(), case.steps, case.envs)])
    for where in (torch.device("cpu"), device):
        algorithm = build_algorithm("sac", {"learning_rate": 1e-3}, case.policy().to(where), 1)
        for _ in range(COMPARED):
            update = algorithm.update(batch)
        weights = [parameter.detach().cpu().flatten() for parameter in algorithm.policy.parameters()]
        ended.append((torch.cat(weights), update.metrics["critic_loss"]))
    (here, loss), (there, loss_there) = ended
    before = torch.cat([parameter.detach().flatten() for parameter in case.policy().parameters()])
    return {
        "largest": (here - there).abs().max().item(),
        "mean": (here - there).abs().mean().item(),
        "moved": (here - before).abs().max().item(),
        "critic_loss": loss_there,
        "cpu_critic_loss": loss,
    }


PARTS: dict[str, Callable[[torch.device, int], dict[str, float]]] = {
    **{name: partial(updates, case) for name, case in CASES.items()},
    "decisions": decisions,
    "together": together,
    "parts": parts,
    "equal": equal,
}


def main() -> int:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda, cuda:N, mps")
    parser.add_argument("--rounds", type=int, default=10, help="updates of each kind")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="of an update on the device")
    given = parser.parse_args()
    for way in WAYS.keys() - set(given.ways):
        del WAYS[way]
    try:
        device = devices.resolve(given.device)
    except ConfigurationError as error:
        parser.error(str(error))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    figures: dict[str, Any] = {"device": name, "rounds": given.rounds, "without_native": lacking()}
    print(f"{name}, beside {torch.get_num_threads()} threads of the CPU", flush=True)
    for part in given.only:
        for key, value in PARTS[part](device, given.rounds).items():
            figures[f"{part}_{key}"] = value
            print(f"{part:16}{key:24}{value:14.7g}", flush=True)
    finish("device", figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
