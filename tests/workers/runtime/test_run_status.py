"""Tests of the end of a run: a role that missed the learner's event learns of it too."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from support.roles_by_hand import Roles

from workers.config.schema import Config, EnvConfig
from workers.runtime.run_status import CLOSED, Ending, verdict
from workers.servers import Servers


@pytest.mark.parametrize(
    ("steps", "mean_return", "expected"),
    [
        (10, None, None),
        (10, 474.9, None),
        (10, 475.0, "solved"),
        (999, 20.0, None),
        (1000, None, "finished"),
        (1000, 475.0, "solved"),
    ],
)
def test_a_run_is_over_at_its_goal_or_after_its_last_step(
    steps: int, mean_return: float | None, expected: str | None
) -> None:
    assert verdict(Config(env=EnvConfig(goal=475.0), total_steps=1000), steps, mean_return) == expected


def test_a_run_without_a_goal_is_over_after_its_last_step_only() -> None:
    config = Config(env=EnvConfig(goal=None), total_steps=1000)
    assert verdict(config, 999, 1e9) is None
    assert verdict(config, 1000, 1e9) == "finished"


def test_an_ended_run_goes_on_under_a_raised_goal(redis_url: str, run_name: str) -> None:
    ending = Ending(redis.Redis.from_url(redis_url), f"{run_name}:")
    low, high = (Config(env=EnvConfig(goal=goal)) for goal in (20.0, 400.0))
    assert ending.verdict(low) is None
    ending.record(steps=5000, mean_return=25.0)
    assert ending.verdict(low) == "solved"
    assert ending.verdict(high) is None
    ending.clear()
    assert ending.verdict(low) is None


@pytest.mark.slow
def test_a_run_that_is_over_is_not_trained_again(servers: Servers, tmp_path: Path, run_name: str) -> None:
    roles = Roles(servers, tmp_path, run_name)
    try:
        learner, actor = roles.start("learner", "env.goal=10"), roles.start("actor", "env.goal=10")
        roles.ended(learner)
        roles.ended(actor)
        first = roles.outcome()
        assert first["state"] == "solved"

        # No learner runs, so no event tells this actor.
        assert "the run is solved already" in roles.ended(roles.start("actor", "env.goal=10"))
        assert "is solved already" in roles.ended(roles.start("learner", "env.goal=10"))
        assert roles.outcome() == first

        raised = f"env.goal={float(str(first['mean_return'])) + 1}"
        learner, actor = roles.start("learner", raised), roles.start("actor", raised)
        roles.ended(learner)
        roles.ended(actor)
        assert roles.outcome()["state"] == "solved"
        assert int(str(roles.outcome()["steps"])) > int(str(first["steps"]))
    finally:
        roles.close()


def test_a_removed_run_is_closed_to_late_roles_until_it_begins_anew(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    ending = Ending(client, f"warren.{run_name}:")
    assert ending.state() is None
    ending.close()
    assert list(client.scan_iter(f"warren.{run_name}:*")) == [], "nothing of the run itself is left"
    assert ending.state() == CLOSED
    assert ending.verdict(Config()) == CLOSED
    ending.clear()
    assert ending.state() is None
    assert ending.verdict(Config()) is None
