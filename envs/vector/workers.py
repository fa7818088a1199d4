"""Slow environments in worker processes, each with a share of the copies: `env.workers`.

gymnasium's AsyncVectorEnv has one process per copy, and sends each its environment as pickled bytes. The processes here
are started anew, like the actor itself, and make their environments from the settings.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np

from envs.masks import FINAL, KEY, Masks, WrongMask
from envs.settings import EnvSettings
from envs.vector.base import LIFE_LOST, Stepped, VectorEnv, no_final_observations
from envs.vector.shared import RESET, STEP, SharedArrays, copy_of
from warren.errors import ConfigurationError
from warren.separate_process import python
from warren.trees import put

GRACE = 2.0  # s that a worker has for ending by itself
_HERE = slice(None)


class WorkersVectorEnv(VectorEnv):
    """N copies in `settings.workers` processes. Infos stay there, but for final observations, masks, lost lives and the
    numbers that are kept of last infos.

    Raises ConfigurationError, with the environment and the copy, for an error in a process, or when one dies.
    """

    def __init__(
        self,
        settings: EnvSettings,
        num_envs: int,
        seed: int | None,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        super().__init__(num_envs, observation_space, action_space, seed, rewards=settings.rewards())
        self._id = settings.id
        self._masks = Masks.of(action_space) if settings.action_masks else None  # None: there are no masks
        channels, choices = len(settings.reward_channels), self._masks.size if self._masks else 0
        self.keep_infos(settings.info_metrics)
        kept = len(self.kept_infos)
        self._shared = SharedArrays(observation_space, action_space, num_envs, channels, choices, kept)
        edges = np.linspace(0, num_envs, settings.workers + 1).astype(int).tolist()
        self._slots = list(itertools.pairwise(edges))
        self._processes: list[subprocess.Popen[bytes]] = []
        lifeline, ours = os.pipe()
        self._end = weakref.finalize(self, _end, self._processes, ours)
        try:
            for slots in self._slots:
                self._processes.append(self._start(settings, slots, lifeline))
            for worker in range(len(self._processes)):  # all import and make their environments at the same time
                self._reply(worker)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(lifeline)
            self._shared.close()

    def _start(self, settings: EnvSettings, slots: tuple[int, int], lifeline: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            python("-m", "envs.worker_process"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(self._shared.fd, lifeline),
            env={"OMP_NUM_THREADS": "1", **os.environ},
            start_new_session=True,  # Ctrl-C is for the actor, which ends its workers when it has finished
        )  # fmt: skip
        given = {
            "settings": {**asdict(settings), "workers": 0},
            "slots": slots,
            "num_envs": self.num_envs,
            "spaces": [repr(self.single_observation_space), repr(self.single_action_space)],
            "choices": self._shared.action_mask.shape[1],
            "memory": self._shared.fd,
            "lifeline": lifeline,
        }
        self._write(process, json.dumps(given).encode() + b"\n")
        return process

    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        if options:
            raise ConfigurationError(f"reset options {options} cannot be given to environments in worker processes")
        self._shared.seed[:] = [-1 if seed is None else seed for seed in seeds]
        self._all(RESET)
        masked = self._shared.masked
        if masked.any() != masked.all():
            raise WrongMask("gave masks of legal actions in some copies, and not in others; give them in all or none")
        self.masks = self._masks if masked.all() else None
        return copy_of(self._shared.observation, _HERE), self._with_masks({})

    def _with_masks(self, info: dict[str, Any]) -> dict[str, Any]:
        if self.masks is not None:
            info[KEY] = self.masks.tree(self._shared.action_mask.copy())
        return info

    def _step(self, actions: Any) -> Stepped:
        shared = self._shared
        put(shared.action, _HERE, actions)
        self._all(STEP)
        terminated, truncated, info = shared.terminated.copy(), shared.truncated.copy(), {}
        done = terminated | truncated
        if done.any():
            final = no_final_observations(self.num_envs)
            for i in np.flatnonzero(done):
                final[i] = copy_of(shared.final_observation, int(i))
            last = {name: shared.kept_infos[:, k].copy() for k, name in enumerate(self.kept_infos)}
            last[LIFE_LOST] = done & shared.life_lost
            info = {"final_obs": final, "_final_obs": done, "final_info": last}
            if self.masks is not None:  # rows of copies that were not cut off are old, and never read
                info[FINAL] = self.masks.tree(shared.final_action_mask.copy())
        info = self._with_masks(info)
        return Stepped(copy_of(shared.observation, _HERE), shared.reward.copy(), terminated, truncated, info)

    def _all(self, command: bytes) -> None:
        try:
            if self.closed:
                raise ConfigurationError(f"environment {self._id!r}: its worker processes have ended; make it anew")
            for process in self._processes:
                self._write(process, command + b"\n")
            for worker in range(len(self._processes)):
                self._reply(worker)
        except ConfigurationError:
            self.close()
            raise

    @staticmethod
    def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died, or ended with an error, which its reply says
            process.stdin.write(data)
            process.stdin.flush()

    def _reply(self, worker: int) -> None:
        process = self._processes[worker]
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            first, end = self._slots[worker]
            raise ConfigurationError(
                f"environment {self._id!r}: worker process {worker} of {len(self._processes)}, which steps the copies "
                f"{first} to {end - 1}, {_ending(process)}; what it printed last stands above, or in the actor's log"
            )
        if problems := json.loads(line).get("problems"):
            raise ConfigurationError(problems)

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        self._end()


def _ending(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(GRACE)
    except subprocess.TimeoutExpired:
        return "closed its pipe"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended by itself with status {status}"


def _end(processes: list[subprocess.Popen[bytes]], lifeline: int) -> None:
    """End workers: waiting ones by the end of their input, playing ones by the end of the lifeline."""
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    _wait(processes)
    os.close(lifeline)
    _wait(processes)
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()  # only now: a thread that waits for a reply holds it until the process has ended


def _wait(processes: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(until - time.monotonic(), 0.01))
