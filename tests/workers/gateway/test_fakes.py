"""Stand-ins for game, Actor and learner, each against its real counterpart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from support.gateways import Echo

from agents import build_policy
from agents.trajectories import Trajectory
from workers.gateway.fakes import actor as fake_actor
from workers.gateway.fakes import gamecore, model
from workers.gateway.fakes.actor import FakeActor
from workers.gateway.fakes.buffer import RandomSampler
from workers.gateway.fakes.games import Play, play
from workers.gateway.fakes.serving import served

ACTOR = "examples/gamecore/actor.py:CartPole"
TICK = b'{"observation": [0, 0, 0]}'


def test_fake_and_own_actors_answer_games_that_leave_and_come_in_bursts() -> None:
    for actor, dialect in ((FakeActor, "game_id"), (Echo, "session")):
        with served(actor, "127.0.0.1", 0, network={"hidden_sizes": [4]}) as server:
            url = f"http://127.0.0.1:{server.port}"
            what = Play(url, dialect, tick=TICK, ticks=5, delay=0.01, burst=True, leave=0.1)
            seen = asyncio.run(play(what, 8, 0.5))
        assert seen.errors == 0 and seen.statuses["200"] == len(seen.latencies) > 0, seen.statuses


def test_a_fake_buffers_trajectories_are_as_the_run_declares_them() -> None:
    space = Dict({"board": Box(0, 255, (2,), np.uint8), "clock": Box(0, 1, (1,), np.float64)})
    policy = build_policy({"hidden_sizes": [4], "core": {"name": "lstm", "size": 3}}, space, Discrete(2), 0)
    trajectory = RandomSampler(policy, 3, 0, 2).collect(5)
    assert Trajectory.from_dict(trajectory.to_dict(), policy.spec()).num_steps == 15


@pytest.mark.parametrize("actions", [Discrete(2), Dict({"move": Discrete(2), "aim": Discrete(3)})])
@pytest.mark.parametrize("fields", [None, ("cut.observation",)])
def test_a_fake_buffers_trajectories_have_the_masks_of_the_run(actions: Any, fields: tuple[str, ...] | None) -> None:
    policy = build_policy({"hidden_sizes": [4]}, Box(0, 1, (2,)), actions, 0)
    trajectory = RandomSampler(policy, 3, 0, 2, True, fields).collect(5)
    assert Trajectory.from_dict(trajectory.to_dict(), policy.spec(True, fields=fields)).num_steps == 15


@pytest.mark.parametrize(
    ("main", "line", "said"),
    [
        (
            fake_actor.main,
            ["--port=0", "--tick=@nowhere"],
            "--tick @nowhere: the file cannot be read (No such file or ",
        ),
        (gamecore.main, ["--end=@nowhere"], "--end @nowhere: the file cannot be read (No such file or directory); "),
        (model.main, ["--port=0", "--kwargs={x", ACTOR], "--kwargs: '{x' is not JSON (Expecting property name "),
        (model.main, ["--port=0", "--network=[1]", ACTOR], "--network: '[1]' is not a JSON object; write it as "),
    ],
)
def test_an_argument_that_cannot_be_read_is_one_line(
    main: Callable[[], int], line: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("sys.argv", ["fake", *line])
    assert main() == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")
