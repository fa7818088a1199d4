"""Tests of a role's worker: it begins when it is ready, and ends if it cannot begin."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery.app.trace import log_policy_reject
from celery.exceptions import Reject
from support.waiting import PATIENCE

from agents.trajectories import ON_REQUEST
from tasks.worker.celery_worker import without_traceback_of_reject
from warren.errors import ConfigurationError
from workers.config.schema import Config, EnvConfig, Sampling
from workers.runtime.facts import check_run_facts, publish_run_facts
from workers.runtime.lease import Lease
from workers.runtime.session import Session, event_rate, source_name, topology_of
from workers.servers import Servers

# A role that stops itself once it is ready, or fails then.
ROLE = """
import sys
from workers.config.schema import Config
from tasks.worker.pool import stop_worker
from workers.runtime.session import Session
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
        timeout=2 * PATIENCE,
        check=False,
    )
    assert "ready" in done.stdout
    assert done.returncode == status, done.stderr
    assert ("RuntimeError: the first weights could not be published" in done.stderr) == (how == "fails")


def test_queues_do_not_depend_on_actors_or_sampling() -> None:
    """Check that it is safe for any process to declare them: the broker refuses a second, different declaration."""
    configs = [
        Config(run="r", sampling=sampling, actors=actors, batch_segments=batch)
        for sampling in Sampling
        for actors, batch in ((3, None), (8, None), (3, 16))
    ]
    declared = [[queue.as_dict() for queue in topology_of(config).declared()] for config in configs]
    assert all(queues == declared[0] for queues in declared)


def session_of(redis_url: str, **settings: Any) -> Any:
    """Return a session of a role without a broker, with `settings` in its configuration."""
    config = Config(**settings)
    return SimpleNamespace(config=config, redis=redis.Redis.from_url(redis_url), topology=topology_of(config))


def lease_taken(learner: Any) -> Lease:
    """Take the lease for a new learner; return it."""
    lease = Lease(learner.redis, learner.topology.key_prefix, "learner of player main")
    assert not lease.try_to_take()
    return lease


def test_a_process_is_told_which_of_its_settings_differ_from_its_runs(redis_url: str, run_name: str) -> None:
    def session(**settings: Any) -> Any:
        return session_of(redis_url, run=run_name, **settings)

    learner = session(sampling=Sampling.streaming, actors=4)
    check_run_facts(session())  # no learner yet: nothing to compare with
    lease = lease_taken(learner)
    publish_run_facts(learner, lease)
    check_run_facts(session(sampling=Sampling.streaming, actors=9))
    with pytest.raises(ConfigurationError) as error:
        check_run_facts(session(env=EnvConfig(id="Acrobot-v1")))
    assert error.value.problems == [
        f"sampling: gathered here, but run {run_name} has streaming; start this process with sampling=streaming",
        f"env.id: Acrobot-v1 here, but run {run_name} has CartPole-v1; start this process with env.id=CartPole-v1",
    ]
    lease.release()
    check_run_facts(session())  # the run's next learner may have other settings
    lease_taken(learner)  # it has not published its settings yet
    check_run_facts(session())


def test_an_actor_whose_algorithm_asks_for_other_fields_is_told_to_take_the_runs(redis_url: str, run_name: str) -> None:
    def session(algorithm: str) -> Any:
        return session_of(redis_url, run=run_name, algorithm={"name": algorithm})

    learner = session("a2c")
    lease = lease_taken(learner)
    publish_run_facts(learner, lease)
    check_run_facts(session("ppo"), {"main": list(ON_REQUEST)})  # the learner's fields are not known yet
    publish_run_facts(learner, lease, ["cut.value"])
    check_run_facts(session("a2c"), {"main": ["cut.value"]})
    check_run_facts(session("ppo"))  # a process that steps environments for actors collects nothing
    with pytest.raises(ConfigurationError) as error:
        check_run_facts(session("ppo"), {"main": list(ON_REQUEST)})
    assert error.value.problems == [
        "algorithm: 'ppo' here has actors send cut.value, extras.log_prob, extras.value, last.value of each step, but "
        f"run {run_name} is trained by 'a2c', which takes cut.value; start this process with the run's algorithm"
    ]


def test_a_redis_broker_redelivers_no_rollout_that_may_still_run(redis_url: str, run_name: str) -> None:
    for timeout, least in ((60.0, 120.0), (600.0, 1200.0), (1.0, 60.0)):
        session = Session(Config(run=run_name, round_timeout=timeout), redis_url, redis_url)
        assert session.app.conf.broker_transport_options["visibility_timeout"] == least


def test_no_two_actor_processes_have_the_same_name() -> None:
    assert len({source_name(0) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("settings", "variable", "rate"),
    [
        ({}, "0.5", 0.0),  # events are off
        ({"task_events": True}, None, 0.01),
        ({"flower_port": 5555}, None, 0.01),
        ({"task_events": True}, "0.5", 0.5),
        ({"task_events": True, "event_rate": 0.0}, "0.5", 0.0),
        ({"task_events": True, "event_rate": 0.2}, "0.5", 0.2),
        ({"event_rate": 0.2}, "0.5", 0.2),
    ],
)
def test_the_event_rate_is_the_settings_else_the_environments_else_a_hundredth(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], variable: str | None, rate: float
) -> None:
    if variable is None:
        monkeypatch.delenv("WARREN_EVENT_RATE", raising=False)
    else:
        monkeypatch.setenv("WARREN_EVENT_RATE", variable)
    assert event_rate(Config(run="r", **settings)) == pytest.approx(rate)


@pytest.mark.parametrize(("error", "lines"), [(Reject("told to stop", requeue=True), 1), (ValueError("wrong"), 5)])
def test_a_message_given_back_is_one_line_of_log_and_a_failure_has_a_traceback(error: Exception, lines: int) -> None:
    try:
        raise error
    except Exception:
        facts = {"name": "learner.learn", "id": "1", "exc": error, "description": "reject"}
        text, info = log_policy_reject.format.strip(), sys.exc_info()
    record = logging.LogRecord("celery.app.trace", logging.WARNING, "trace.py", 1, text, (facts,), info)
    assert without_traceback_of_reject(record)
    assert len(logging.Formatter().format(record).splitlines()) == lines
