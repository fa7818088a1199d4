"""A process that steps some of a vector's environments: `python -m envs.worker_process`, started by workers.py.

Observations and actions are in shared memory. The pipes carry a line of JSON at the start and a letter per step;
nothing is ever unpickled. The process ends with its parent, however that ends, as its input and its lifeline end then.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from envs.masks import FINAL, KEY
from envs.registry import make_slots
from envs.settings import EnvSettings
from envs.vector.base import LIFE_LOST, VectorEnv, blaming
from envs.vector.last_infos import numbers_in
from envs.vector.shared import RESET, SharedArrays, copy_of
from warren.errors import ConfigurationError, WarrenError
from warren.trees import put


def main() -> None:
    """Read this process's share from the first line of its input, then serve until the input ends."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # prints of a game must not get among the replies
    commands = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    given = json.loads(_line(commands))
    threading.Thread(target=_end_with, args=(given["lifeline"],), daemon=True).start()
    settings = EnvSettings(**given["settings"])
    with _telling(replies, settings.id):
        vector = make_slots(settings, range(*given["slots"]), given["num_envs"])
        vector.merges_infos = False  # the parent does not read them
        shared = _shared(vector, settings, given)
    replies.write(b"{}\n")
    rows = slice(*given["slots"])
    while command := commands.read(2):
        with _telling(replies, settings.id):
            _serve(command[:1], vector, shared, rows, settings.id)
        replies.write(b"{}\n")
    vector.close()
    os._exit(0)  # without waiting for threads that the games have started


def _serve(command: bytes, vector: VectorEnv, shared: SharedArrays, rows: slice, env_id: str) -> None:
    if command == RESET:
        seeds: Sequence[int | None] = [None if seed < 0 else int(seed) for seed in shared.seed[rows]]
        with blaming(env_id, "reset()"):
            observation, info = vector.reset(seed=seeds)
            shared.masked[rows] = vector.masks is not None
            if vector.masks is not None:
                shared.action_mask[rows] = vector.masks.rows(info[KEY])
        put(shared.observation, rows, observation)
        return
    with blaming(env_id, "step()"):
        stepped = vector._step(copy_of(shared.action, rows))
    put(shared.observation, rows, stepped.observation)
    shared.reward[rows] = stepped.reward
    shared.terminated[rows], shared.truncated[rows] = stepped.terminated, stepped.truncated
    if vector.masks is not None:
        shared.action_mask[rows] = vector.masks.rows(stepped.info[KEY])
        if FINAL in stepped.info:
            shared.final_action_mask[rows] = vector.masks.rows(stepped.info[FINAL])
    if "final_obs" in stepped.info:
        ended, last = stepped.terminated | stepped.truncated, stepped.info.get("final_info", {})
        for i in np.flatnonzero(ended):
            put(shared.final_observation, rows.start + int(i), stepped.info["final_obs"][i])
        shared.life_lost[rows] = last.get(LIFE_LOST, False)
        over = np.flatnonzero(ended & ~shared.life_lost[rows])
        with blaming(env_id, "step()"):
            for k, name in enumerate(vector.kept_infos if len(over) else ()):
                shared.kept_infos[rows.start + over, k] = numbers_in(last, name, over)


def _shared(vector: VectorEnv, settings: EnvSettings, given: dict[str, Any]) -> SharedArrays:
    """Return the parent's arrays, if their layout is the one that this process's environments need."""
    spaces = (vector.single_observation_space, vector.single_action_space)
    if [repr(space) for space in spaces] != given["spaces"]:
        raise ConfigurationError(
            f"environment {settings.id!r} has the spaces {spaces[0]} and {spaces[1]} in a worker process, "
            f"{' and '.join(given['spaces'])} in the actor; all copies must have the same"
        )
    channels, kept = len(settings.reward_channels), len(settings.info_metrics)
    shared = SharedArrays(*spaces, given["num_envs"], channels, given["choices"], kept, given["memory"])
    shared.close()
    return shared


class _telling:
    """Sends an error in the block to the parent as a line of JSON, and ends the process."""

    def __init__(self, replies: BinaryIO, env_id: str) -> None:
        self.replies, self.env_id = replies, env_id

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            return
        if isinstance(error, ConfigurationError):
            problems = error.problems
        elif isinstance(error, WarrenError):
            problems = [f"environment {self.env_id!r}: {error}"]
        else:
            problems = [f"environment {self.env_id!r}: its worker process failed: {type(error).__name__}: {error}"]
        self.replies.write(json.dumps({"problems": problems}).encode() + b"\n")
        os._exit(1)


def _line(commands: BinaryIO) -> bytes:
    read = bytearray()
    while byte := commands.read(1):
        if byte == b"\n":
            break
        read += byte
    return bytes(read)


def _end_with(lifeline: int) -> None:
    """End this process with its parent, by a pipe that ends then: a step that never returns must not outlive it."""
    os.read(lifeline, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.argv[0] = "warren-environments"
    main()
