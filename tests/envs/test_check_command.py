"""`python -m envs.check NAME`: thousands of random steps, a line for each finding, and an exit status."""

from __future__ import annotations

import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from support import launched

from envs.check import main, parse
from envs.checking import one_agent, two_player
from envs.checking.held import check_growth
from envs.checking.report import Report
from envs.settings import EnvSettings
from tests.envs.test_check import GAME


class Sound(gymnasium.Env):
    """An environment without faults: random observations, episodes of ten steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action):
        self.steps += 1
        return self.seen(), float(action), self.steps == 10, False, {}


class SharedChance(Sound):
    def reset(self, *, seed=None, options=None):
        if seed is not None:
            np.random.seed(seed)
        return super().reset(seed=seed)

    def seen(self):
        return np.random.uniform(-1, 1, 3).astype(np.float32)


class OwnChance(Sound):
    def seen(self):
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32)


class Remembers(Sound):
    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed)

    def seen(self):
        return np.full(3, min(self.episodes, 100) / 100, np.float32)


class NoChance(Sound):
    def seen(self):
        return np.zeros(3, np.float32)


class Doubles(Sound):
    def seen(self):
        return super().seen().astype(np.float64)


class Outside(Sound):
    def seen(self):
        return super().seen() * 3


class Overflows(Sound):
    observation_space = gymnasium.spaces.Box(0, 255, (3,), np.uint8)

    def seen(self):
        return np.full(3, 300)


class Endless(Sound):
    def step(self, action):
        return (*super().step(action)[:2], False, False, {})


class LeavesFiles(Sound):
    def __init__(self):
        KEPT.append(Path(__file__).open())  # noqa: SIM115


class Words(Sound):
    observation_space = gymnasium.spaces.Text(5)

    def seen(self):
        return "abc"


class Ends(Sound):
    def step(self, action):
        return (*super().step(action)[:3], 0, {})


KEPT: list[object] = []


def report_of(game: type, steps: int = 60) -> Report:
    report = Report()
    one_agent.check(report, EnvSettings(f"{__file__}:{game.__name__}"), steps)
    return report


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_agent, "VECTOR_SECONDS", 0.01)
    monkeypatch.setattr("envs.checking.repeatable.STEPS", 30)


def test_a_sound_environment_passes_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(Sound)
    assert report.problems == report.notes == []
    printed = capsys.readouterr().out
    assert "60 random steps; episodes: 6 of 10 to 10 steps, 6 ended by the game (terminated)" in printed
    assert "rewards      from 0 to 1" in printed
    assert "the same seed plays the same over 30 steps, another seed something else" in printed
    assert report.summary() == "no problems"


@pytest.mark.parametrize(
    ("game", "problem"),
    [
        (SharedChance, "when another copy plays in the same process: they share something"),
        (OwnChance, "the same seed and actions give something else at the reset; its chance must follow from reset"),
        (Remembers, "of a copy that has played gives something else at the reset than of a new one"),
        (Overflows, "gave 300 at [0], the space is from 0 to 255"),
        (LeavesFiles, "each copy that is made and closed leaves 1 files"),
        (Words, "observations are Text(1, 5, charset="),
    ],
)
def test_faults_that_break_a_run_are_problems(game: type, problem: str) -> None:
    report = report_of(game)
    assert len(report.problems) == 1 and problem in report.problems[0], report.problems


@pytest.mark.parametrize(
    ("game", "note"),
    [
        (NoChance, "two seeds play the same"),
        (Doubles, "gave float64, the space says float32: it is converted at each step"),
        (Outside, "the space is from -1.0 to 1.0"),
        (Endless, "60 random steps, and no episode ended"),
        (Ends, "step() gave truncated=0; it should be True or False"),
    ],
)
def test_faults_that_a_run_tolerates_are_notes(game: type, note: str) -> None:
    report = report_of(game)
    assert report.problems == []
    assert any(note in text for text in report.notes), report.notes


def test_memory_that_grows_with_the_steps_is_a_problem() -> None:
    report = Report()
    check_growth(report, [100 << 20, 120 << 20, 140 << 20, 160 << 20], 1000)
    assert "grows by 83,886 bytes a step (40 MiB in the second half of 1,000)" in report.problems[0]


def test_memory_that_grows_once_is_not_a_problem() -> None:
    report = Report()
    check_growth(report, [100 << 20, 120 << 20, 160 << 20, 160 << 20], 1000)
    assert report.problems == []


@pytest.mark.parametrize("name", ["matrix:rps", "openspiel:kuhn_poker"])
def test_a_sound_game_passes_every_check(name: str) -> None:
    report = Report()
    two_player.check(report, name, {}, 200)
    assert report.problems == []


@pytest.mark.parametrize(
    ("fault", "found", "kind"),
    [
        ("made.reward[:, 1] = 0", "is not zero-sum: a game ended with returns 1 and 0", "problems"),
        ("made.action_mask[0] = False", "has no legal action", "problems"),
        ("made.truncated[:] = True", "is truncated and not done", "problems"),
        ("made = getattr(self, 'kept', made); self.kept = made; made.to_move[:] = player", "to_move", "problems"),
        ("made.observation[:] = np.random.default_rng().random((n, 2))", "chance must follow from", "problems"),
        ("made.observation = made.observation.astype(np.float64)", "observation is float64", "notes"),
        ("made.action_mask[:, 2] = False", "1 of 3 actions were never legal: 2", "notes"),
    ],
)
def test_faults_of_a_game_are_found(tmp_path: Path, fault: str, found: str, kind: str) -> None:
    path = tmp_path / "my_game.py"
    path.write_text(GAME.replace("FAULT", fault))
    report = Report()
    two_player.check(report, f"{path}:Game", {}, 80)
    assert any(found in text for text in getattr(report, kind)), (report.problems, report.notes)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return launched.command("envs.check", *arguments)


def test_the_command_exits_with_0_without_problems() -> None:
    done = run("CartPole-v1", "--steps", "100", "kwargs.max_episode_steps=20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as arrays" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("no problems")


def test_the_command_exits_with_1_and_the_users_line_if_a_step_fails(tmp_path: Path) -> None:
    path = tmp_path / "my_game.py"
    path.write_text(GAME.replace("FAULT", "raise KeyError('board')"))
    done = run(f"{path}:Game")
    assert done.returncode == 1
    assert "my_game.py:12: KeyError: 'board'" in done.stdout.replace("\n" + " " * 22, " ")
    assert done.stdout.splitlines()[-1] == "1 problem"


def test_an_environment_that_ends_its_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my_game.py"
    path.write_text("import os\ndef Game():\n    os._exit(9)\n")
    assert main([f"{path}:Game"]) == 1
    assert "ended the process that played it (status 9)" in capfd.readouterr().out


def test_a_wrong_setting_is_one_line_and_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["CartPole-v1", "frame_stak=4"]) == 2
    assert "setting 'frame_stak=4' does not exist; did you mean frame_stack=" in capsys.readouterr().err


def test_settings_are_read_as_json_or_text() -> None:
    assert parse(["frame_stack=4", "preprocessing=atari", "env.kwargs.size=5", "kwargs.name=x"]) == {
        "frame_stack": 4, "preprocessing": "atari", "kwargs": {"size": 5, "name": "x"},
    }  # fmt: skip
