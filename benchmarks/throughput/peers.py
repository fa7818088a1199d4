"""The peers of `benchmarks.throughput`, each run by the Python of its own environment, and their output.

DIR holds these environments: DIR/ray (stable-baselines3, ray[rllib], ale-py), DIR/sf (sample-factory), DIR/jax (jax,
gymnax, flax, optax, distrax), DIR/cleanrl (torch, envpool, gymnasium, tyro). A missing one is left out, and named.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOREIGN = Path(__file__).resolve().parents[1] / "foreign"
PATIENCE = 400.0  # s
SAMPLE_FACTORY_FPS = re.compile(r"Fps is \(10 sec: [\d.]+, 60 sec: [\d.]+, 300 sec: ([\d.]+)\)")


@dataclass(frozen=True)
class Ran:
    """One training run: environment steps a second with all costs included, and its final mean return."""

    steps_per_s: float
    mean_return: float | None


@dataclass(frozen=True)
class Peer:
    """`command` lacks the interpreter, which is ENVIRONMENT/bin/python in the folder of all environments."""

    name: str
    environment: str
    command: tuple[str, ...]
    threads: int = 1  # OpenMP's
    stop_after: float | None = None  # s after which a peer that would train on is stopped

    def missing(self, folder: Path | None) -> str | None:
        """Return why it cannot run; None if it can."""
        if folder is None:
            return f"{self.name}: left out, no --peers DIR"
        if not self._python(folder).exists():
            return f"{self.name}: left out, {self._python(folder)} is not there"
        return None

    def run(self, folder: Path) -> Ran:
        """Train once. If it fails, end this program with the peer's own message."""
        process = subprocess.Popen(
            [str(self._python(folder)), *self.command],
            env={**os.environ, "OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": ""},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=self.stop_after or PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            if self.stop_after is None:
                sys.exit(f"{self.name} took longer than {PATIENCE:g} s:\n{printed[-4000:]}")
        else:
            if process.returncode != 0:
                sys.exit(f"{self.name} failed with status {process.returncode}:\n{printed[-4000:]}")
        return self._read(printed)

    def _read(self, printed: str) -> Ran:
        if self.environment == "sf":
            rates = [float(rate) for rate in SAMPLE_FACTORY_FPS.findall(printed) if float(rate) > 0]
            rewards = re.findall(r"Avg episode reward: \[\(0, '([-\d.]+)'\)\]", printed)
            return Ran(rates[-1], float(rewards[-1]) if rewards else None)
        figures = json.loads(printed[printed.rindex("{") :].splitlines()[0])
        return Ran(figures["steps_per_s"], figures["return"])

    def _python(self, folder: Path) -> Path:
        return folder / self.environment / "bin" / "python"


def purejaxrl(checkout: Path, total: int, envs: int = 128, learning_rate: float = 2.5e-3) -> Peer:
    """Return it with `envs` environments x 128 steps, four epochs, four minibatches; by default as Warren."""
    given = (str(checkout / "purejaxrl"), str(envs), "128", "4", str(learning_rate), str(total))
    return Peer("PureJaxRL", "jax", (str(FOREIGN / "purejaxrl_peer.py"), *given), threads=2)


def stable_baselines3(game: str, total: int) -> Peer:
    """Return its PPO with as many environments, steps, epochs and samples a minibatch as Warren; two threads.

    The game `cartpole-defaults` is CartPole by the library's own settings.
    """
    name = f"Stable-Baselines3 PPO, {game}"
    return Peer(name, "ray", (str(FOREIGN / "sb3_peer.py"), game, str(total)), threads=2)


def cleanrl(checkout: Path, game: str, total: int) -> Peer:
    """Return its PPO on envpool's games with as many environments, steps, epochs and samples a minibatch as Warren."""
    command = (str(FOREIGN / "cleanrl_peer.py"), str(checkout), game, str(total))
    return Peer(f"CleanRL PPO on envpool, {game}", "cleanrl", command, threads=2)


def sample_factory(seconds: int, *settings: str) -> Peer:
    """Return its APPO with two workers; its rate is that of the last minutes, which it logs itself.

    `settings`: NAME=VALUE, instead of those of sample_factory_peer.py.
    """
    command = (str(FOREIGN / "sample_factory_peer.py"), str(seconds), *settings)
    return Peer("Sample Factory APPO", "sf", command, stop_after=seconds + 20.0)


def rllib(algorithm: str, seconds: int) -> Peer:
    """Return RLlib's PPO or IMPALA on Pong, two runners of eight environments; two threads, as Warren's learner has."""
    name = f"RLlib {algorithm.upper()}, pong"
    return Peer(name, "ray", (str(FOREIGN / "rllib_peer.py"), algorithm, str(seconds)), threads=2)
