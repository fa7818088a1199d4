"""Tests of users' code that makes environments of old gym: it works, though gym uses names that numpy 2 dropped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STEPS = """
import gym
from tasks.service import Worker, service

env = gym.make("CartPole-v1")
env.reset(seed=1)
print("stepped", len(env.step(0)))

class Game(Worker):
    @service
    def play(self):
        return 1
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "workers.script", "old.py"],
        ["-c", "from workers.launch.kinds.user_code import Place, find_class; find_class(Place('old.py'), 'Game')"],
        ["-c", "from warren.user_code import find; find('environment', 'old.py:Game')"],
    ],
    ids=["script", "service", "environment"],
)  # fmt: skip
def test_old_gym_that_a_users_file_imports_steps(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(STEPS)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "stepped 5" in done.stdout, done.stderr
