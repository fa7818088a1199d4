"""Tests of roles' rights on the broker: a role's patterns match the names that it uses, and not those of others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import rights
from tasks.admin.cleanup import exchanges
from tasks.app import create_app
from tasks.topology import STATUS, WEIGHTS, Topology

RUN = Topology("kuhn-1", players=("main", "other"))
SEGMENTS, ROLLOUTS = RUN.learner_queue("main").name, RUN.actor_queue().name
LEAGUE = RUN.service_queue("league.request").name
RUNS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", fullmatch=True)


def heard(event: str, subscriber: str) -> str:
    """Return the name of a subscriber's queue with a fixed ending, not a random one: ids of tests contain it."""
    return RUN.event_queue(event, subscriber).name.rpartition(".")[0] + ".0123ab"


def may(role: str, kind: str, name: str, run: str | None = RUN.run) -> bool:
    return re.search(rights.TABLE[role].patterns(run)[kind], name) is not None


@pytest.mark.parametrize(
    "role, kind, name",
    [
        ("actor", "read", ROLLOUTS),
        ("actor", "write", RUN.learner.name),
        ("actor", "write", RUN.service.name),
        ("actor", "configure", heard(f"{WEIGHTS}.main", "actor-0")),
        ("inference", "read", RUN.service_queue("actor-0.act").name),
        ("inference", "write", rights.DEFAULT_EXCHANGE),
        ("env", "write", RUN.service.name),
        ("learner", "read", RUN.rank_queue("main", 2).name),
        ("learner", "write", RUN.event(WEIGHTS).name),
        ("learner", "write", RUN.event(f"{STATUS}.main").name),
        ("learner", "configure", heard(STATUS, "learner")),
        ("league", "read", LEAGUE),
        ("watcher", "read", RUN.celery_events),
        ("launcher", "configure", SEGMENTS),
    ],
)
def test_a_role_may_use_the_names_that_its_work_needs(role: str, kind: str, name: str) -> None:
    assert may(role, kind, name) and may(role, kind, name, run=None)


@pytest.mark.parametrize(
    "role, kind, name",
    [
        ("actor", "read", SEGMENTS),
        ("actor", "configure", RUN.learner.name),
        ("actor", "configure", ROLLOUTS),
        ("actor", "write", RUN.event(WEIGHTS).name),
        ("actor", "write", RUN.event(f"{WEIGHTS}.actor").name),
        ("actor", "write", f"{RUN.control}.pidbox"),
        ("actor", "write", rights.DEFAULT_EXCHANGE),
        ("actor", "read", RUN.dead_queue("actor").name),
        ("actor", "configure", heard(WEIGHTS, "learner")),
        ("inference", "read", LEAGUE),
        ("env", "write", RUN.learner.name),
        ("learner", "read", LEAGUE),
        ("league", "read", SEGMENTS),
        ("league", "write", RUN.event(WEIGHTS).name),
        ("evaluator", "write", RUN.event(WEIGHTS).name),
        ("watcher", "write", RUN.service.name),
        ("watcher", "read", SEGMENTS),
    ],
)
def test_a_role_may_not_use_names_of_other_roles(role: str, kind: str, name: str) -> None:
    assert not may(role, kind, name) and not may(role, kind, name, run=None)


@settings(max_examples=10)
@given(RUNS, RUNS)
def test_the_rights_of_one_run_fit_no_names_of_another(one: str, other: str) -> None:
    queue = Topology(other).learner_queue().name
    assert may("learner", "read", queue, run=one) == may("launcher", "read", queue, run=one) == (one == other)


@given(RUNS)
def test_a_users_name_determines_its_role_and_its_run(run: str) -> None:
    assert [rights.role_of(rights.user_name(role, run)) for role in rights.TABLE] == [(r, run) for r in rights.TABLE]
    assert rights.role_of(rights.user_name("actor")) == ("actor", None)
    assert rights.role_of("guest") is rights.role_of(f"warren.{run}.root") is rights.role_of("warren.root") is None


def test_roles_that_declare_for_others_may_declare_every_exchange() -> None:
    app = create_app(RUN, "amqp://127.0.0.1:1//", "redis://127.0.0.1:1/0")
    for exchange in exchanges(app, RUN):
        told = {role for role in rights.TABLE if may(role, "configure", exchange.name)}
        assert told == {"learner", "league", "launcher"}, exchange.name


def test_a_user_of_another_name_may_declare_all() -> None:
    assert rights.may_declare("guest")("anything") and not rights.may_declare("warren.actor")(RUN.learner.name)
