"""Tests of tasks.service: the services that decorators define in a class, and values that they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.service import (
    Spec,
    Worker,
    defined,
    event_handler,
    handlers_of,
    register,
    role_of,
    service,
    services_of,
)
from tasks.service_options import MOST_BATCH
from warren.errors import ConfigurationError


class Painter(Worker):
    @service
    def plain(self):
        pass

    @service(response=False, batch=5)
    def send_to_learner(self, experiences):
        pass

    @register(response=True, batch=4)
    def together(self, items):
        pass

    @register(batch=8, gather=3, wait=0.5, retries=0)
    def some(self, items):
        pass

    @event_handler("policy_update", latest=True)
    def update(self, weights):
        pass

    def helper(self):
        pass


def test_services_are_named_by_role_and_method_and_nothing_else_is_one():
    assert [spec.name for spec in services_of(Painter)] == [
        "painter.plain", "painter.send_to_learner", "painter.some", "painter.together",
    ]  # fmt: skip
    assert services_of(Painter()) == services_of(Painter)
    assert set(defined()) >= {"painter.plain", "painter.together"}


def test_the_decorators_say_how_a_service_is_called_and_gathered():
    by_name = {spec.name.partition(".")[2]: spec for spec in services_of(Painter)}
    assert by_name["plain"] == Spec("painter.plain", True, 1, 1, None)
    assert by_name["send_to_learner"] == Spec("painter.send_to_learner", False, 5, 1, None, isolate=False)
    assert by_name["together"].minimum == 4 and by_name["together"].wait is None
    assert (by_name["some"].minimum, by_name["some"].wait, by_name["some"].retries) == (3, 0.5, 0)


def test_register_waits_for_whole_batches_and_service_does_not():
    class Both(Worker):
        @service(batch=4)
        def greedy(self, items):
            pass

        @register
        def alone(self):
            pass

    by_name = {spec.name.partition(".")[2]: spec.minimum for spec in services_of(Both)}
    assert by_name == {"greedy": 1, "alone": 1}


def test_a_role_may_be_given_and_is_inherited():
    class Critic(Painter):
        role = "judge"

    assert role_of(Critic) == role_of(Critic()) == "judge"
    assert services_of(Critic)[0].name == "judge.plain"


def test_handlers_say_what_they_subscribe_to():
    (received,) = handlers_of(Painter).values()
    assert received.event == "policy_update" and received.latest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0}, "batch=0"),
        ({"batch": 2, "gather": "all"}, "gather='all'"),
        ({"batch": 2, "gather": 3}, "gather=3"),
        ({"batch": 2, "wait": 1.0}, "wait=1.0"),
        ({"batch": 2, "gather": "exactly", "wait": -1}, "wait=-1"),
        ({"retries": -1}, "retries=-1"),
        ({"bound": 5}, "bound=5"),
        ({"response": False, "bound": 0}, "bound=0"),
    ],
)
def test_invalid_settings_are_refused_with_their_value(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        service(**settings)


def test_names_of_warrens_own_tasks_are_refused():
    with pytest.raises(ConfigurationError, match=r"actress\.rollout"):

        class Actress(Worker):
            @service
            def rollout(self):
                pass


class Seed:  # as in msagent, it derives from no class
    @register(response=True)
    def func(self, x):
        return x


class Plain:
    pass


def test_a_class_without_a_base_is_a_worker_by_its_services():
    assert [spec.name for spec in services_of(Seed())] == ["seed.func"]
    assert role_of(Seed()) == "seed"


@pytest.mark.parametrize("thing", [Plain(), Plain, 3])
def test_an_object_that_is_not_a_worker_is_refused_with_a_remedy(thing):
    with pytest.raises(ConfigurationError, match=r"is not a worker: no method of it is marked with @service"):
        role_of(thing)


def test_a_spec_of_another_version_is_read_as_far_as_it_is_known():
    spec = Spec("actor.add", batch=8)
    assert Spec.from_dict(spec.as_dict()) == spec
    assert Spec.from_dict({**spec.as_dict(), "added_in_a_newer_version": 1}) == spec
    older = {name: value for name, value in spec.as_dict().items() if name not in ("bound", "isolate")}
    assert Spec.from_dict(older) == spec


@pytest.mark.parametrize("role", ["team.red", "team red", "*", "#", "r" * 81, "", 5])
def test_a_role_that_cannot_be_part_of_a_queues_name_is_refused(role):
    found: Any = type("Player", (), {"role": role, "play": service(lambda self: None)})
    if role == "":
        assert role_of(found) == "player"
        return
    with pytest.raises(ConfigurationError, match=r"Player: role=.* cannot name a role; use letters"):
        role_of(found)


def test_a_batch_that_amqp_cannot_count_is_refused():
    assert service(batch=MOST_BATCH)(lambda self, calls: calls).__service__.batch == MOST_BATCH
    with pytest.raises(ConfigurationError, match="batch=40000: a batch holds 1 to 32767 calls"):
        service(batch=40_000)


@pytest.mark.parametrize("levels", [1, 11, -1])
def test_priorities_have_two_to_ten_levels(levels):
    with pytest.raises(ConfigurationError, match=rf"priorities={levels}: use 2 to 10 levels"):
        service(priorities=levels)
