"""FightingICE's adapter, against a server that speaks the game's protocol."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import support
from support.fightingice_server import DELAY, Server
from support.waiting import until

import envs
from envs import EnvSettings
from envs.checking import one_agent
from envs.checking.report import Report
from envs.fightingice import game as fightingice_game
from envs.fightingice import protocol as fightingice_protocol
from envs.fightingice.commands import ACTIONS, KEYS, typed
from envs.fightingice.observation import FIELDS
from warren.errors import ConfigurationError, UnknownName, WarrenError

FORWARD, PUNCH, STAND = ACTIONS.index("FORWARD_WALK"), ACTIONS.index("STAND_A"), ACTIONS.index("STAND")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder like a built game's, and put a `java` that runs the test server first in PATH."""
    for part in ("game/data/characters", "game/data/ai", "game/lib", "game/classes", "path"):
        (tmp_path / part).mkdir(parents=True)
    (tmp_path / "game/data/ai/Sleeper.jar").touch()
    java = tmp_path / "path/java"

    java.write_text(
        f'#!/bin/sh\nexport PYTHONPATH={support.FOLDER.parents[1]}\nwhile [ "$1" != Main ]; do shift; done\nshift\n'
        f'exec {sys.executable} {support.FOLDER / "fightingice_server.py"} "$@"\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(fightingice_game.FOLDER, str(tmp_path / "game"))
    return tmp_path / "game"


def value(observation: np.ndarray, field: str) -> float:
    return float(observation[FIELDS.index(field)])


def test_the_checker_finds_no_problem(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_agent, "VECTOR_SECONDS", 0.0)
    monkeypatch.setattr("envs.checking.repeatable.STEPS", 20)
    report = Report()
    one_agent.check(report, EnvSettings("fightingice:zen", {"frames": 60, "hp": 100}), 40)
    assert report.problems == []


def test_a_game_is_played_to_its_end_and_the_next_one_begins(server: Server) -> None:
    env = envs.make("fightingice:zen", address=server.address, opponent="dummy")
    for _ in range(2):
        observation, _ = env.reset()
        assert value(observation, "me.hp") == 1 and value(observation, "me.x") < value(observation, "other.x")
        total, over, steps = 0.0, False, 0
        while not over:
            far = value(observation, "other.x") - value(observation, "me.x") > 0.15
            observation, reward, over, truncated, _ = env.step(FORWARD if far else PUNCH)
            total, steps = total + reward, steps + 1
            assert not truncated
        assert total == pytest.approx(1.0)  # the opponent lost all its hit points
        assert steps < 30
    runs = [one for one in server.heard if one.DESCRIPTOR.name == "RunGameRequest"]
    assert [(one.character_1, one.player_1, one.player_2) for one in runs] == [("ZEN", "warren-1", "Keyboard")] * 2
    env.close()


def test_a_game_ended_by_the_clock_is_decided_by_hit_points_over_all_rounds() -> None:
    server = Server(rounds=3, frames=60)
    options = {"rewards": "result", "rounds": 3, "frames": 60}
    env = envs.make("fightingice:garnet", address=server.address, opponent="dummy", **options)
    env.reset()
    plan = [FORWARD] * 4 + [PUNCH] * 2 + [STAND] * 9  # in each round
    rewards, over = [], False
    while not over:
        _, reward, over, _, _ = env.step(plan[len(rewards) % len(plan)])
        rewards.append(reward)
    assert len(rewards) == 45 and rewards[-1] == 1 and not any(rewards[:-1])
    env.close()
    server.close()


def test_two_agents_see_mirrored_stages_and_have_opposite_returns(server: Server) -> None:
    games = envs.make_two_player("fightingice:zen", 1, 0, address=server.address)
    turn = games.reset()
    seen = [turn.observation[0], games.step(np.array([FORWARD])).observation[0]]
    for field in ("me.x", "other.x", "me.looks_right", "other.looks_right", "me.hp"):
        assert value(seen[0], field) == pytest.approx(value(seen[1], field), abs=0.05), field
    turn = games.step(np.array([STAND]))
    returns = None
    while returns is None:
        far = value(turn.observation[0], "other.x") - value(turn.observation[0], "me.x") > 0.15
        games.step(np.array([FORWARD if far else PUNCH]))
        turn = games.step(np.array([STAND]))
        finished = games.pop_finished().returns
        returns = finished[0].tolist() if len(finished) else None
    assert returns == [1, -1] and games.max_return == 1
    assert games.action_text(0, PUNCH) == "STAND_A"
    games.close()


def test_a_random_opponent_follows_the_seed(server: Server) -> None:
    env = envs.make("fightingice:zen", address=server.address)
    seen = []
    for _ in range(2):
        env.reset(seed=7)
        over = False
        places = []
        while not over:
            observation, _, over, _, _ = env.step(STAND)
            places.append(value(observation, "other.x"))
        seen.append(places)
    assert seen[0] == seen[1] and len(set(seen[0])) > 3
    env.close()


def test_delayed_observations_begin_after_fifteen_frames(server: Server) -> None:
    late = envs.make("fightingice:zen", address=server.address, opponent="dummy", delay=True)
    observation, _ = late.reset()
    steps = 0
    while not observation.any():
        observation, *_ = late.step(FORWARD)
        steps += 1
    assert steps == -(-DELAY // 4)
    late.close()


def test_keys_of_an_action_depend_on_the_side_that_is_faced() -> None:
    def text(keys: list[object]) -> list[str]:
        return ["".join(name for name in "LRUDABC" if getattr(key, name)) for key in keys]

    assert text(typed("STAND_D_DF_FC", True, 5)) == ["D", "RD", "RC", "", ""]
    assert text(typed("STAND_D_DF_FC", False, 4)) == ["D", "LD", "LC", ""]
    assert text(typed("FORWARD_WALK", True, 4)) == ["R", "R", "R", "R"]
    assert text(typed("THROW_A", False, 4)) == ["RA", "", "", ""]
    assert all(len(typed(action, True, 4)) == 4 and len(KEYS[action].split()) < 4 for action in ACTIONS)


def test_a_game_process_starts_and_ends_with_its_environment(folder: Path) -> None:
    env = envs.make("fightingice:lud", opponent="Sleeper", frames=60)
    (guard,) = [one for one in psutil.Process().children() if "Main" in " ".join(one.cmdline())]
    processes = [guard, *guard.children(recursive=True)]
    place = Path(guard.cwd())
    env.reset()
    env.step(FORWARD)
    env.reset()  # during a game: by a new process
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes))
    until(lambda: not place.exists(), "the end of the game's folder")
    env.step(FORWARD)
    env.close()
    assert not [one for one in psutil.Process().children() if "Main" in " ".join(one.cmdline())]


def test_a_killed_player_leaves_no_process_and_no_folder(folder: Path) -> None:
    script = "import envs, sys; env = envs.make('fightingice:zen'); env.reset(); print('playing', flush=True); input()"
    player = psutil.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert player.stdout.readline() == b"playing\n"
    (guard,) = player.children()
    place, game = Path(guard.cwd()), guard.children()
    player.kill()
    player.wait()
    until(lambda: not place.exists() and not any(one.is_running() for one in [guard, *game]))


def test_wrong_settings_are_refused_with_the_remedy(
    folder: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownName, match="fightingice:zen"):
        envs.make("fightingice:zne")
    with pytest.raises(UnknownName, match="'Sleepr' does not exist; did you mean Sleeper"):
        envs.make("fightingice:zen", opponent="Sleepr")
    with pytest.raises(ConfigurationError, match="frame_skip=2 must be at least 4"):
        envs.make("fightingice:zen", frame_skip=2)
    with pytest.raises(ConfigurationError, match="must be host:port"):
        envs.make("fightingice:zen", address="here")
    with pytest.raises(ConfigurationError, match=r"has no data/characters; docs/environments\.md says how"):
        envs.make("fightingice:zen", game=str(tmp_path / "path"))
    monkeypatch.delenv(fightingice_game.FOLDER)
    with pytest.raises(ConfigurationError, match="set WARREN_FIGHTINGICE=FOLDER"):
        envs.make("fightingice:zen")


def test_a_game_that_does_not_start_shows_its_output(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "path/java").write_text("#!/bin/sh\necho Error: no such class; exit 3\n")
    with pytest.raises(ConfigurationError, match=r"did not start\n  Error: no such class"):
        envs.make("fightingice:zen")


def test_a_game_that_breaks_off_is_an_error_and_the_next_game_works(server: Server) -> None:
    env = envs.make("fightingice:zen", address=server.address, opponent="dummy")
    env.reset()
    server.broken = True
    with pytest.raises(WarrenError, match=r"FightingICE at 127\.0\.0\.1:\d+: "):
        for _ in range(100):
            env.step(STAND)
    server.broken = False
    assert env.reset()[0].any()
    env.close()


@pytest.mark.skipif(importlib.util.find_spec("pyftg") is None, reason="pyftg is not installed")
def test_the_messages_equal_pyftgs() -> None:
    from pyftg.protoc import message_pb2, service_pb2

    for name, fields in fightingice_protocol._MESSAGES.items():
        theirs = getattr(service_pb2, name, None) or getattr(message_pb2, f"Grpc{name}")
        known = {field.name: field for field in theirs.DESCRIPTOR.fields}
        mine = {field.name: field for field in fightingice_protocol.message(name).DESCRIPTOR.fields}
        for field, (number, _) in fields.items():
            assert known[field].number == number, (name, field)
            kinds = {known[field].type, mine[field].type}
            assert len(kinds) == 1 or kinds == {known[field].TYPE_ENUM, known[field].TYPE_INT32}, (name, field)
            assert known[field].label == mine[field].label, (name, field)


def test_a_vector_with_settings_of_the_game_can_be_reset(folder: Path) -> None:
    settings = EnvSettings("fightingice:zen", {"opponent": "dummy", "hp": 60, "frames": 80})
    games = envs.make_vector(settings, 2, 0)
    games.reset()
    games.close()
