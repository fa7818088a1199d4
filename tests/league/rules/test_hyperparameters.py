"""league.rules.hyperparameters: each rule of population-based training, and wrong configurations."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from league.rules.hyperparameters import Hyperparameters
from warren.errors import ConfigurationError

ALL = {
    "gamma": 0.99,
    "clip": {"rule": "constant", "value": 0.2},
    "entropy": {"rule": "perturb", "value": 0.01, "factors": [0.5, 2.0], "low": 0.005, "high": 0.02},
    "learning_rate": {"rule": "log_uniform", "low": 1e-5, "high": 1e-2},
    "unroll": {"rule": "choice", "options": [16, 32, 64]},
    "seed": {"rule": "cyclic", "values": [1, 2, 3]},
    "temperature": {"rule": "schedule", "points": [[0.0, 1.0], [0.5, 0.2], [1.0, 0.1]], "factors": [0.8, 1.25]},
}


def test_initial_values_are_drawn_or_as_configured() -> None:
    rules, rng = Hyperparameters(ALL), np.random.default_rng(0)
    drawn = [rules.initial(rng) for _ in range(200)]
    assert {(values["gamma"], values["clip"], values["entropy"]) for values in drawn} == {(0.99, 0.2, 0.01)}
    assert {values["unroll"] for values in drawn} == {16, 32, 64}
    logs = np.log10([values["learning_rate"] for values in drawn])
    assert logs.min() >= -5.0 and logs.max() <= -2.0 and np.mean(logs) == pytest.approx(-3.5, abs=0.2)


@given(st.integers(0, 2**32))
def test_mutated_values_stay_within_bounds_and_are_json(seed: int) -> None:
    rules, rng = Hyperparameters(ALL), np.random.default_rng(seed)
    values = rules.initial(rng)
    for _ in range(30):
        values = rules.exploited(rules, json.loads(json.dumps(values)), rng)
        assert 0.005 <= values["entropy"] <= 0.02 and 1e-5 <= values["learning_rate"] <= 1e-2
        assert values["gamma"] == 0.99 and values["clip"] == 0.2 and values["unroll"] in (16, 32, 64)


def test_perturbing_multiplies_by_one_of_the_factors() -> None:
    rules, rng = Hyperparameters({"lr": {"rule": "perturb", "value": 1.0}}), np.random.default_rng(1)
    assert {rules.exploited(rules, {"lr": 1.0}, rng)["lr"] for _ in range(50)} == {0.8, 1.2}


def test_a_choice_changes_to_another_option() -> None:
    rules, rng = Hyperparameters({"n": {"rule": "choice", "options": [1, 2, 3]}}), np.random.default_rng(1)
    assert {rules.exploited(rules, {"n": 2}, rng)["n"] for _ in range(50)} == {1, 3}


def test_a_log_uniform_field_is_drawn_anew_as_often_as_configured() -> None:
    rules = Hyperparameters({"lr": {"rule": "log_uniform", "low": 1e-6, "high": 1.0, "redraw": 0.3}})
    rng = np.random.default_rng(5)
    mutated = [rules.exploited(rules, {"lr": 1e-3}, rng)["lr"] for _ in range(2000)]
    kept_near = np.mean(np.isclose(mutated, 8e-4) | np.isclose(mutated, 1.2e-3))
    assert kept_near == pytest.approx(0.7, abs=0.035)


def test_a_cycle_takes_the_next_value_with_each_period() -> None:
    rules = Hyperparameters({"seed": {"rule": "cyclic", "values": ["a", "b", "c"]}})
    values = rules.initial(np.random.default_rng(0))
    assert [rules.at(values, period)["seed"] for period in range(5)] == ["a", "b", "c", "a", "b"]
    shifted = [rules.at({"seed": 2}, period)["seed"] for period in range(3)]
    assert shifted == ["c", "a", "b"]


def test_a_schedule_is_interpolated_over_the_period() -> None:
    rules = Hyperparameters(ALL)
    values = rules.initial(np.random.default_rng(0))
    at = [rules.at(values, 7, progress)["temperature"] for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert at == pytest.approx([1.0, 0.6, 0.2, 0.15, 0.1])


def test_a_mutated_schedule_is_scaled_as_a_whole() -> None:
    rules, rng = Hyperparameters(ALL), np.random.default_rng(2)
    scale = rules.exploited(rules, rules.initial(rng), rng)["temperature"]
    assert scale in (0.8, 1.25)
    assert rules.at({**rules.initial(rng), "temperature": scale}, 0, 0.5)["temperature"] == pytest.approx(0.2 * scale)


def test_a_field_that_the_source_lacks_gets_its_initial_value() -> None:
    rules = Hyperparameters({"old": 1, "new": {"rule": "perturb", "value": 3.0}})
    assert rules.exploited(rules, {"old": 1}, np.random.default_rng(0)) == {"old": 1, "new": 3.0}


PERTURB = {"rule": "perturb", "value": 1e-3, "factors": [2.0], "high": 0.01}
CYCLIC, SCHEDULE = (
    {"rule": "cyclic", "values": [3e-3, 1e-3]},
    {"rule": "schedule", "points": [[0.0, 3e-3], [1.0, 3e-4]]},
)
RATES = [1e-3, 5e-3]
OPTIONS = {"rule": "choice", "options": RATES, "redraw": 0.0}


@pytest.mark.parametrize(
    ("rule", "source", "value", "expected"),
    [
        (PERTURB, PERTURB, 3e-3, 6e-3),
        (PERTURB, {**PERTURB, "value": 2e-3}, 3e-3, 6e-3),
        (PERTURB, {"rule": "log_uniform", "low": 1e-5, "high": 1.0}, 0.5, 0.01),
        (PERTURB, 3e-3, 3e-3, 6e-3),
        (PERTURB, SCHEDULE, 1.0, 1e-3),
        (PERTURB, CYCLIC, 0, 1e-3),
        (PERTURB, "linear", "linear", 1e-3),
        (SCHEDULE, SCHEDULE, 0.5, 0.5),
        (SCHEDULE, PERTURB, 3e-3, 1.0),
        (CYCLIC, PERTURB, 3e-3, 0),
        (OPTIONS, PERTURB, 5e-3, 5e-3),
        (4e-3, PERTURB, 3e-3, 4e-3),
    ],
)
def test_a_value_is_copied_only_if_it_means_the_same_in_both_rules(
    rule: object, source: object, value: object, expected: float
) -> None:
    by_rule, by_source = Hyperparameters({"lr": rule}), Hyperparameters({"lr": source})
    copied = by_rule.exploited(by_source, {"lr": value}, np.random.default_rng(0))
    assert copied == {"lr": pytest.approx(expected)}


def test_a_choice_is_drawn_anew_if_the_value_is_not_an_option() -> None:
    by_rule, by_source = Hyperparameters({"lr": OPTIONS}), Hyperparameters({"lr": PERTURB})
    assert by_rule.exploited(by_source, {"lr": 3e-3}, np.random.default_rng(0))["lr"] in RATES


def test_the_same_seed_gives_the_same_lineage() -> None:
    rules = Hyperparameters(ALL)

    def line(seed: int) -> list[dict[str, object]]:
        rng = np.random.default_rng(seed)
        values = [rules.initial(rng)]
        for _ in range(5):
            values.append(rules.exploited(rules, values[-1], rng))
        return values

    assert line(4) == line(4) != line(5)


def test_all_wrong_fields_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Hyperparameters(
            {
                "a": {"rule": "pertub", "value": 1.0},
                "b": {"rule": "log_uniform", "low": -1.0, "high": 1.0},
                "c": {"rule": "choice", "optons": [1]},
                "d": {"rule": "schedule", "points": [[0.5, 1.0], [0.2, 1.0]]},
                "e": {"rule": "perturb"},
                "f": {"rule": "perturb", "value": 5.0, "high": 1.0},
                "g": {"rule": "choice", "options": 3},
                "h": {"rule": "cyclic", "values": "abc"},
                "i": {"rule": "log_uniform", "low": 0.1, "high": 1.0, "factors": 0.8},
                "fine": 3,
            }
        )
    report = str(caught.value)
    assert len(caught.value.problems) == 9
    for part in (
        "'a'",
        "did you mean perturb",
        "0 < low <= high",
        "did you mean options",
        "ascend",
        "'value'",
        "outside",
        "options is 3; give a list of at least one",
        "values is 'abc'",
        "factors is 0.8",
    ):
        assert part in report


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"rule": "log_uniform", "low": 1e-5, "high": float("inf")}, "high=inf is not finite"),
        ({"rule": "log_uniform", "low": 1e-5, "high": 1.0, "factors": ["0.8"]}, "'0.8' is not a number; write one"),
        ({"rule": "perturb", "value": 4, "factors": [float("nan")]}, r"factors=\[nan\] is not finite"),
        ({"rule": "perturb", "value": True}, "True is not a number"),
        ({"rule": "schedule", "points": [[0.0, "x"]]}, "'x' is not a number"),
        ({"rule": "schedule", "points": [[0.0, 1.0], [1.0, float("inf")]]}, "points=.* is not finite"),
        ({"rule": "choice", "options": [1.0, float("nan")]}, "options=.* is not finite"),
        (float("inf"), "value=inf is not finite"),
    ],
)
def test_a_rule_that_would_fail_at_an_exploit_or_an_update_is_refused(rule: object, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"hyperparameter 'lr': {problem}"):
        Hyperparameters({"lr": rule})


def test_a_rule_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a hyperparameter has no name"):
        Hyperparameters({"": 5})


def test_a_perturbed_integer_stays_one_and_reaches_all_values_within_its_bounds() -> None:
    rng = np.random.default_rng(0)
    rules = Hyperparameters({"epochs": {"rule": "perturb", "value": 2, "low": 1, "high": 9.5}})
    values, seen = rules.initial(rng), set()
    for _ in range(300):
        values = rules.exploited(rules, values, rng)
        assert isinstance(values["epochs"], int) and 1 <= values["epochs"] <= 9
        seen.add(values["epochs"])
    assert seen == set(range(1, 10))
