"""Tests of roles started by hand: they take their run's settings, and contradictions are one message."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import redis
from support.composed import settings
from support.lease_holders import held_by_the_dead

from warren.errors import ConfigurationError
from workers.config.command_line import named
from workers.config.schema import Config, Sampling, from_hydra, to_yaml
from workers.runtime.lease import Lease
from workers.runtime.run_settings import joined, leave
from workers.runtime.session import Session
from workers.servers import Servers


def composed(*overrides: str, name: str = "actor") -> tuple[Config, set[str]]:
    """Return (the configuration of a command line, the settings that it names)."""
    found = settings(name, *overrides)
    return from_hydra(found), named(name, found, list(overrides))


@pytest.fixture
def run(embedded: Servers, run_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WARREN_BROKER_URL", embedded.broker_url)
    monkeypatch.setenv("WARREN_REDIS_URL", embedded.redis_url)
    return run_name


@pytest.fixture
def client(embedded: Servers) -> Any:
    return redis.Redis.from_url(embedded.redis_url)


def leads(client: Any, run: str, *overrides: str) -> None:
    """Have a launcher lead the run of these overrides."""
    config, _ = composed(f"run={run}", *overrides, name="train")
    client.set(f"warren.{run}:leader", "some launcher")
    client.set(f"warren.{run}:card", json.dumps({"kind": "training", "config": to_yaml(config)}))


def test_a_role_beside_a_launcher_takes_the_settings_of_the_run(client: Any, run: str) -> None:
    leads(client, run, "sampling=streaming", "env.id=Acrobot-v1", "network.hidden_sizes=[8]", "seed=3", "actors=5")
    config, said = composed(f"run={run}", "log_level=ERROR", "actor_device=cpu", "sampling=streaming")
    found = joined("actor", config, said)
    assert (found.sampling, found.env.id, found.seed, found.actors) == (Sampling.streaming, "Acrobot-v1", 3, 5)
    assert found.network["hidden_sizes"] == [8]
    assert (found.run, found.log_level, found.actor_id) == (run, "ERROR", None)


def test_a_role_of_a_league_needs_to_name_no_league(client: Any, run: str) -> None:
    leads(client, run, "experiment=rps", "league.games=64")
    found = joined("evaluator", *composed(f"run={run}", "trial=t", name="evaluator"))
    assert found.league is not None and found.league["games"] == 64 and found.trial == "t"
    chosen = joined("evaluator", *composed(f"run={run}", "league=rps", name="evaluator"))
    assert chosen.league == found.league, "a run may change what a group sets besides the game"


@pytest.mark.parametrize(
    ("overrides", "problems"),
    [
        (["env.id=Acrobot-v1"], ["env.id: Acrobot-v1 here, but run {run} has CartPole-v1; leave env.id out"]),
        (["env=acrobot"], ["env.id: Acrobot-v1 here, but run {run} has CartPole-v1; leave env.id out"]),
        (["sampling=gathered", "algorithm.gamma=0.5"], ["algorithm.gamma: 0.5", "sampling: gathered here"]),
        (["league=rps"], ["league.env: "]),
        (["network.hidden_sizes=[3]"], ["network.hidden_sizes: [3] here, but run {run} has [64, 64]"]),
        (["+env.kwargs.x=1"], ["env.kwargs.x: 1 here, but run {run} has nothing"]),
    ],
)
def test_a_given_setting_that_differs_from_the_runs_is_refused(
    client: Any, run: str, overrides: list[str], problems: list[str]
) -> None:
    leads(client, run, "sampling=streaming")
    with pytest.raises(ConfigurationError) as error:
        joined("actor", *composed(f"run={run}", *overrides))
    assert len(error.value.problems) == len(problems)
    for problem, expected in zip(error.value.problems, problems, strict=True):
        assert problem.startswith(expected.format(run=run)) and problem.endswith("this process takes the run's")


def test_a_named_default_group_is_refused_if_the_run_has_another(client: Any, run: str) -> None:
    leads(client, run, "algorithm=a2c")
    with pytest.raises(ConfigurationError, match=f"algorithm.name: ppo here, but run {run} has a2c"):
        joined("actor", *composed(f"run={run}", "algorithm=ppo"))
    assert joined("actor", *composed(f"run={run}")).algorithm["name"] == "a2c"


def test_without_a_launcher_the_settings_are_those_of_the_living_learner(
    embedded: Servers, client: Any, run: str
) -> None:
    learner, _ = composed(f"run={run}", "seed=3", name="learner")
    given = composed(f"run={run}", "seed=4", name="actor")
    assert joined("actor", *given).seed == 4, "no learner yet"
    session, work = Session(learner, embedded.broker_url, embedded.redis_url), "learner of player main"
    leave(session, Lease(client, f"warren.{run}:", work))
    held_by_the_dead(client, f"warren.{run}:", work)
    assert joined("actor", *given).seed == 4, "a dead learner may come back with other settings"
    client.delete(f"warren.{run}:lease:{work}")
    lease = Lease(client, f"warren.{run}:", work)
    lease.take(threading.Event())
    assert joined("actor", *given).seed == 4, "it has come back, but has not said its settings"
    leave(session, lease)
    leave(session, Lease(client, f"warren.{run}:", "learner of player exploiter"))  # which is dead
    with pytest.raises(ConfigurationError, match="seed: 4 here"):
        joined("actor", *given)
    assert joined("learner", *composed(f"run={run}", "seed=4", name="learner")).seed == 4, "the learner decides"
    assert joined("actor", *composed(f"run={run}")).seed == 3
