"""Tests that each process of a run has a lease and a number of its own."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
import redis
from support.lease_holders import held_by_the_dead, held_elsewhere, taken_elsewhere
from support.waiting import until

from warren.errors import ConfigurationError, WarrenError
from workers.config import roles
from workers.config.schema import Config
from workers.runtime import lease as leases
from workers.runtime.lease import living
from workers.runtime.session import Session
from workers.runtime.standing import BY_HAND, standing
from workers.servers import Servers


@pytest.fixture
def session(embedded: Servers, run_name: str) -> Session:
    return Session(Config(run=run_name, trial="t"), embedded.broker_url, embedded.redis_url)


def works(session: Session) -> list[str]:
    return [holder.work for holder in living(session.redis, session.topology.key_prefix)]


def test_a_number_that_is_not_given_is_the_next_free_one(session: Session) -> None:
    prefix = session.topology.key_prefix
    held_elsewhere(session.redis, prefix, "actor-0")
    held_by_the_dead(session.redis, prefix, "actor-1")
    held_elsewhere(session.redis, prefix, "gateway-2")
    with standing(session, roles.ACTOR) as first, standing(session, roles.ACTOR) as second:
        assert (first.actor_id, second.actor_id) == (1, 2)
        assert works(session) == ["actor-0", "actor-1", "actor-2", "gateway-2"]
    assert works(session) == ["actor-0", "gateway-2"]
    assert session.config.actor_id is None


def test_roles_by_hand_get_numbers_that_a_launcher_never_uses(session: Session) -> None:
    session.redis.set(f"{session.topology.key_prefix}leader", "some launcher")
    with standing(session, roles.LEAGUE) as config:
        assert config.league_id == BY_HAND


def test_a_taken_number_is_refused_with_its_holder(
    session: Session, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Session, "lease", lambda self, work: leases.Lease(self.leases, f"{run_name}:", work, seconds=0.2)
    )
    session.config.actor_id = 7
    held_elsewhere(session.redis, f"{run_name}:", "actor-7")
    refusal = pytest.raises(
        ConfigurationError, match="actor-7: already held by process 77 on gpu-3; leave actor_id out"
    )
    with refusal, standing(session, roles.ACTOR):
        pass


@pytest.mark.parametrize(("there", "number"), [("nobody", 0), ("dead", 0), ("here", 1), ("elsewhere", 1)])
def test_an_evaluator_takes_number_0_unless_a_living_one_has_it(
    session: Session, monkeypatch: pytest.MonkeyPatch, there: str, number: int
) -> None:
    prefix = session.topology.key_prefix
    monkeypatch.setattr(
        Session, "lease", lambda self, work: leases.Lease(self.leases, self.topology.key_prefix, work, seconds=0.5)
    )
    if there == "dead":
        held_by_the_dead(session.redis, prefix, "evaluator-0")
    elif there == "here":
        leases.Lease(session.redis, prefix, "evaluator-0").take(threading.Event())
    elif there == "elsewhere":
        held_elsewhere(session.redis, prefix, "evaluator-0")
    with standing(session, roles.EVALUATOR) as config:
        assert config.evaluator_id == number


def test_a_process_that_lost_its_number_is_told_to_stop(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Session, "lease", lambda self, work: leases.Lease(self.leases, self.topology.key_prefix, work, seconds=1.0)
    )
    told = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        ends = pytest.raises(WarrenError, match="process 77 on gpu-3 has become actor-0, since this process was silent")
        with ends, standing(session, roles.ACTOR):
            taken_elsewhere(session.redis, session.topology.key_prefix, "actor-0")
            until(told.is_set)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert works(session) == ["actor-0"], "the process released another's lease"


def test_redis_is_waited_for_until_a_number_is_got(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    exists: Any = session.leases.exists
    away = [redis.ConnectionError("refused"), redis.ConnectionError("refused")]

    def asked(*keys: str) -> int:
        if away:
            raise away.pop()
        return int(exists(*keys))

    monkeypatch.setattr(session.leases, "exists", asked)
    with standing(session, roles.ACTOR) as config:
        assert config.actor_id == 0
    assert not away


def test_processes_that_do_shared_work_are_listed_each(session: Session) -> None:
    one, another = (leases.present(session.app, session.topology, "service a") for _ in range(2))
    with one:
        with another:
            assert works(session) == ["service a", "service a"]
        assert works(session) == ["service a"]
