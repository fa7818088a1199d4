"""Data that algorithms declare as needed, and errors of runs that cannot provide it."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from support.experience import ON_POLICY, random_trajectory

from agents import Batch, Needs, Update, build_algorithm, build_policy
from agents.algorithms.contract import not_asked_for, provided
from agents.trajectories import ON_REQUEST, on_policy

OBSERVATIONS = Box(-1, 1, (4,))
PROVIDED = provided(on_policy(OBSERVATIONS, Discrete(2)))


def test_a_run_provides_what_its_samplers_collect():
    assert {"extras.log_prob", "extras.value", "last.observation", "last.value", "cut.value"} == PROVIDED


@pytest.mark.parametrize("name", ON_POLICY)
def test_a_gathered_run_provides_every_field_that_an_algorithm_reads(name):
    policy = build_policy({}, OBSERVATIONS, Discrete(2), 1)
    algorithm = build_algorithm(name, {}, policy, 1)
    assert algorithm.needs.problems(name, PROVIDED, "gathered", 8) == []
    trajectory = random_trajectory(policy)
    for group in ("extras", "last", "cut"):
        kept = {
            key: value
            for key, value in getattr(trajectory, group).items()
            if f"{group}.{key}" in algorithm.needs.fields
        }
        setattr(trajectory, group, kept)
    update = algorithm.update([trajectory])
    assert isinstance(update, Update) and update.priorities is None
    assert algorithm.behaviour() == {}


def test_errors_name_the_data_that_a_run_lacks_and_the_reason():
    needs = Needs(fields=("extras.q",), sampling=("gathered",), because="learns from new data alone")
    lacking, unsuited = needs.problems("sarsa", PROVIDED, "streaming", 8)
    assert "algorithm: 'sarsa' needs 'extras.q'" in lacking and "extras.log_prob" in lacking
    assert unsuited == (
        "algorithm: 'sarsa' does not suit sampling=streaming, since it learns from new data alone; use "
        "sampling=gathered, or another algorithm"
    )


def test_data_older_than_an_algorithm_takes_is_refused_where_data_may_be_old():
    needs = Needs(max_staleness=2)
    assert needs.problems("mine", PROVIDED, "gathered", 8) == []
    assert needs.problems("mine", PROVIDED, "streaming", 2) == []
    (problem,) = needs.problems("mine", PROVIDED, "streaming", 8)
    assert problem.startswith("max_staleness: 8 is more than the 2 weight versions")


@pytest.mark.parametrize("fields", [None, (), ("extras.value",), ("last.value", "last.observation"), ("extras.q",)])
def test_samplers_collect_the_fields_that_an_algorithm_names_or_else_all(fields):
    spec = on_policy(OBSERVATIONS, Discrete(2), fields=fields)
    always = {"last.observation"}
    assert provided(spec) - always == {name for name in ON_REQUEST if fields is None or name in fields}
    assert spec.values_steps == (fields is None or any(name in fields for name in ("extras.value", "last.value")))


def test_networks_with_a_memory_compute_values_at_each_step_unrequested():
    assert on_policy(OBSERVATIONS, Discrete(2), memory={"hidden": (4,)}, fields=()).values_steps


def test_an_update_that_reads_an_unrequested_field_is_told_what_to_add():
    spec = on_policy(OBSERVATIONS, Discrete(2), fields=("extras.log_prob", "cut.value"))
    assert not_asked_for(KeyError("value"), "mine", spec) == (
        "algorithm 'mine': update() reads 'value' of its trajectories, which its needs do not ask for; add "
        "'extras.value' or 'last.value' to the fields of its Needs, or leave the fields out to get all"
    )
    assert not_asked_for(KeyError("log_prob"), "mine", spec) is None  # it was requested: the error has another cause
    assert not_asked_for(KeyError("value"), "mine", on_policy(OBSERVATIONS, Discrete(2))) is None


def test_a_source_that_does_not_fit_the_other_needs_is_named():
    assert Needs(source="uniform", length=1, fields=("cut.observation",)).problems("d", PROVIDED, "streaming", 8) == []
    for needs, message in (
        (Needs(source="ring"), "source 'ring'; use one of queue, uniform, prioritized"),
        (Needs(length=3), "length 3, which a queue does not draw"),
        (Needs(source="prioritized"), "sequences of length None; use 1 or more"),
        (Needs(source="uniform", length=1, fields=("last.value",)), "'last.value', which sequences drawn"),
    ):
        (problem,) = needs.problems("d", PROVIDED, "gathered", 8)
        assert message in problem, problem


def test_burn_in_of_a_replay_must_be_shorter_than_the_drawn_sequence():
    needs = Needs(source="uniform", length=8, burn_in=8)
    (problem,) = needs.problems("r2d2", PROVIDED | {"memory"}, "gathered", 8, unroll_length=128)
    assert "burn_in: 8 steps leave none" in problem


def test_a_batch_is_a_sequence_of_trajectories_with_weights():
    first, second = object(), object()
    batch = Batch([first, second], np.ones(2, np.float32))
    assert list(batch) == [first, second] and batch[1] is second and batch[:1] == [first] and len(batch) == 2
    assert batch.weights.tolist() == [1, 1] and Batch([]).weights is None
