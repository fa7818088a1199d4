"""Environments in worker processes play as in this process, and leave nothing behind however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest

import envs
from envs import EnvSettings
from envs.vector.workers import WorkersVectorEnv
from warren.errors import ConfigurationError


class Unread(dict[str, Any]):
    """An info that must not be merged with those of other environments."""

    def items(self) -> Any:
        raise AssertionError("infos are merged, and nobody reads them")


class Slow(gymnasium.Env):
    """An environment with Dict observations that fails as `fault` says at action 2."""

    observation_space = gymnasium.spaces.Dict(
        {"board": gymnasium.spaces.Box(0, 99, (2, 3), np.float32), "turn": gymnasium.spaces.Discrete(9)}
    )
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, fault: str = ""):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("what a game prints is in nobody's way")
        self.steps, self.end = 0, int(self.np_random.integers(2, 8))
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        if action == 2:
            match self.fault:
                case "raises":
                    raise KeyError("the board is gone")
                case "hangs":
                    time.sleep(600)
                case "dies":
                    os._exit(7)
        info = Unread(lives=3) if sys.argv[0] == "warren-environments" else {}
        return self.observe(), float(action), self.steps == self.end, self.steps == 5, info

    def observe(self):
        return {"board": self.np_random.uniform(0, 99, (2, 3)).astype(np.float32), "turn": self.steps}


def slow(fault: str = "", copies: int = 5, workers: int = 2) -> WorkersVectorEnv:
    made = envs.make_vector(EnvSettings(f"{__file__}:Slow", {"fault": fault}, workers=workers), copies, seed=3)
    assert isinstance(made, WorkersVectorEnv)
    return made


def wait_until(condition: Any) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_workers_play_as_in_one_process_merge_no_infos_and_end_when_closed() -> None:
    there, here = slow(), envs.make_vector(f"{__file__}:Slow", 5, seed=3)
    children = [process.pid for process in there._processes]
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in children if Path("/proc").exists())
    assert "/dev/shm" not in maps
    generator, ends = np.random.default_rng(0), 0
    for seed in (None, 8):
        mine, its = there.reset(seed=seed), here.reset(seed=seed)
        for _ in range(30):
            np.testing.assert_equal(mine[0], its[0])
            action = generator.integers(0, 3, 5)
            mine, its = there.step(action), here.step(action)
            np.testing.assert_equal(mine[1:4], its[1:4])
            for i in np.flatnonzero(mine[2] | mine[3]):
                np.testing.assert_equal(mine[4]["final_obs"][i], its[4]["final_obs"][i])
                ends += 1
    assert ends > 20
    np.testing.assert_array_equal(there.pop_episodes(), here.pop_episodes())
    there.close()
    assert not any(map(psutil.pid_exists, children))


def test_an_exception_names_the_environment_the_line_and_the_copy() -> None:
    vector = slow("raises")
    vector.reset()
    with pytest.raises(ConfigurationError) as error:
        vector.step(np.array([0, 1, 0, 2, 1]))
    for word in ("environment '", ":Slow': step() failed at ", f"{Path(__file__).name}:", "KeyError", "(copy 3 of 5)"):
        assert word in str(error.value)
    with pytest.raises(ConfigurationError, match="its worker processes have ended; make it anew"):
        vector.step(np.zeros(5, np.int64))


def test_in_one_process_the_copy_is_named_too() -> None:
    vector = envs.make_vector(f"{__file__}:Slow", 3, seed=1, fault="raises")
    vector.reset()
    with pytest.raises(KeyError) as error:
        vector.step(np.array([0, 2, 0]))
    assert error.value.__notes__ == ["copy 1 of 3"]


@pytest.mark.parametrize(("how", "fate"), [("by itself", "ended by itself with status 7"), ("killed", "SIGKILL")])
def test_a_process_that_dies_is_one_error_that_names_its_copies(
    how: str, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.vector.workers.GRACE", 60.0)  # s; a busy machine may take long to end a process
    vector = slow("dies")
    vector.reset()
    children = [process.pid for process in vector._processes]
    if how == "killed":
        os.kill(children[1], signal.SIGKILL)
    with pytest.raises(ConfigurationError, match=rf":Slow': worker process 1 of 2, .* copies 2 to 4, .*{fate}"):
        vector.step(np.array([0, 1, 0, 1, 0 if how == "killed" else 2]))
    assert not any(map(psutil.pid_exists, children)), "the other process must end too"


def test_a_step_that_hangs_does_not_outlive_its_parent() -> None:
    program = (
        "import envs, numpy as np\n"
        f"vector = envs.make_vector(envs.EnvSettings({f'{__file__}:Slow'!r}, {{'fault': 'hangs'}}, workers=2), 2, 1)\n"
        "vector.reset()\n"
        "print(*(process.pid for process in vector._processes), flush=True)\n"
        "vector.step(np.array([0, 2]))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in children))


def test_a_failure_to_make_an_environment_names_its_line(tmp_path: Path) -> None:
    game = tmp_path / "game.py"
    game.write_text("import os\nraise RuntimeError('only in the actor') if os.getppid() != PARENT else 0\n")
    with pytest.raises(ConfigurationError, match=r"game\.py:2: NameError"):
        envs.make_vector(EnvSettings(f"{game}:Game", workers=1), 2, seed=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kwargs": {"board": object()}}, "cannot be sent to a process (Object of type object is not JSON"),
        ({"workers": 3}, "env.workers: 3 processes for env.num_envs=2; at most one a copy"),
        ({"id": "__main__:Game"}, "'__main__:Game' is part of the program that runs"),
        ({"workers": -1}, "env.workers: -1 is too small; it must be at least 0"),
    ],
)
def test_settings_that_no_process_can_be_given_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        envs.make_vector(EnvSettings(**{"id": "CartPole-v1", "workers": 1, **settings}), 2, seed=0)
    assert words in str(error.value)


class Masked(Slow):
    """An environment that forbids one action, another at each step."""

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": np.arange(3) != 0}

    def step(self, action):
        return *super().step(action)[:4], {"action_mask": np.arange(3) != self.steps % 3}


def test_masks_of_legal_actions_come_from_the_processes() -> None:
    settings = EnvSettings(f"{__file__}:Masked", workers=2)
    vector = envs.make_vector(settings, 3, seed=3)
    _, info = vector.reset()
    assert info["action_mask"].tolist() == [[False, True, True]] * 3
    *_, ended, _, info = vector.step(np.ones(3, int))
    assert info["action_mask"][~ended].tolist() == [[True, False, True]] * int((~ended).sum())
    vector.close()
