"""A role's worker: what it begins when it is ready, and that it does not sit there when that failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workers.config.schema import Config, EnvConfig, Sampling
from workers.runtime.session import event_rate, source_name, topology_of
from workers.servers import Servers

# A role that stops itself once it is ready, or fails then.
ROLE = """
import sys
from workers.config.schema import Config
from workers.runtime.session import Session, stop_worker
run, broker_url, redis_url, how = sys.argv[1:]
session = Session(Config(run=run), broker_url, redis_url)
session.declare()
def on_ready():
    print("ready", flush=True)
    if how == "fails":
        raise RuntimeError("the first weights could not be published")
    stop_worker()
sys.exit(session.work("role", session.topology.actor_queue(), on_ready, lambda: None))
"""


@pytest.mark.parametrize(("how", "status"), [("stops", 0), ("fails", 1)])
def test_a_role_ends_when_it_stops_itself_or_cannot_begin(
    servers: Servers, run_name: str, how: str, status: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ROLE, run_name, servers.broker_url, servers.redis_url, how],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "ready" in done.stdout
    assert done.returncode == status, done.stderr
    assert ("RuntimeError: the first weights could not be published" in done.stderr) == (how == "fails")


def test_streaming_bounds_the_learners_queue_by_what_an_update_takes() -> None:
    streaming = Config(run="r", sampling=Sampling.streaming, actors=3, env=EnvConfig(num_envs=2))
    assert topology_of(streaming).learner_bound == 3
    streaming.batch_segments = 8
    assert topology_of(streaming).learner_bound == 8
    assert topology_of(Config(run="r", actors=3)).learner_bound > 3


def test_no_two_actor_processes_have_the_same_name() -> None:
    assert len({source_name(0) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("settings", "variable", "rate"),
    [
        ({}, "0.5", 0.0),  # nobody looks
        ({"task_events": True}, None, 0.01),
        ({"flower_port": 5555}, None, 0.01),
        ({"task_events": True}, "0.5", 0.5),
        ({"task_events": True, "event_rate": 0.0}, "0.5", 0.0),
        ({"task_events": True, "event_rate": 0.2}, "0.5", 0.2),
    ],
)
def test_the_share_of_calls_told_of_is_the_settings_else_the_environments_else_a_hundredth(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], variable: str | None, rate: float
) -> None:
    if variable is None:
        monkeypatch.delenv("WARREN_EVENT_RATE", raising=False)
    else:
        monkeypatch.setenv("WARREN_EVENT_RATE", variable)
    assert event_rate(Config(run="r", **settings)) == pytest.approx(rate)
