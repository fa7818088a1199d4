import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.operators.schedules import SCHEDULES, Constant, InverseSquareRoot, Linear, build_schedule, build_timed
from warren.errors import ConfigurationError

EXAMPLES = {  # settings, then steps -> value worked by hand
    "constant": ({"value": 0.3}, {0: 0.3, 10**9: 0.3}),
    "linear": ({"start": 1, "end": 0.2, "steps": 100}, {0: 1, 25: 0.8, 50: 0.6, 100: 0.2, 1000: 0.2}),
    "exponential": (
        {"start": 8.0, "rate": 0.5, "steps": 10, "end": 0.9},
        {0: 8, 10: 4, 20: 2, 5: 8 / math.sqrt(2), 30: 1, 40: 0.9},
    ),
    "piecewise": (
        {"steps": [10, 20, 40], "values": [0, 1, 0.5]},
        {0: 0, 10: 0, 15: 0.5, 20: 1, 30: 0.75, 40: 0.5, 99: 0.5},
    ),
    "cosine": (
        {"start": 1.0, "end": 0.2, "steps": 60},
        {0: 1, 20: 0.2 + 0.8 * 0.75, 30: 0.6, 40: 0.2 + 0.8 * 0.25, 60: 0.2, 61: 0.2},
    ),
    "inverse_square_root": ({"start": 2.0, "steps": 100}, {0: 2, 300: 1, 800: 2 / 3}),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_goes_through_points_worked_by_hand(name):
    settings, points = EXAMPLES[name]
    schedule = build_schedule({"name": name, **settings}, "learning_rate of ppo")
    assert {steps: schedule(steps) for steps in points} == pytest.approx(points, abs=1e-15)


def test_a_number_alone_is_a_constant():
    assert build_schedule(3, "learning_rate of ppo") == Constant(3.0)


def test_a_piecewise_schedule_may_have_a_single_point():
    schedule = build_schedule({"name": "piecewise", "steps": [5], "values": [2.0]}, "epsilon")
    assert [schedule(steps) for steps in (0, 5, 6)] == [2, 2, 2]


@given(
    rate=st.floats(1e-6, 1),
    to=st.floats(0, 1),
    coefficient=st.floats(0, 1),
    over=st.integers(1, 10**8),
    steps=st.integers(0, 10**9),
)
def test_schedules_equal_ppos_former_formulas_exactly(rate, to, coefficient, over, steps):
    assert rate * Linear(1.0, to, over)(steps) == rate * (1 - (1 - to) * min(1.0, steps / over))
    assert InverseSquareRoot(coefficient, over)(steps) == coefficient / (1.0 + steps / over) ** 0.5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "linaer"}, "epsilon of dqn: schedule 'linaer' does not exist; did you mean linear"),
        ({"start": 1}, "epsilon of dqn must be a number or a table with a name (constant, cosine, exponential, "),
        (True, "epsilon of dqn must be a number or a table"),
        ("0.1", "epsilon of dqn must be a number or a table"),
        ({"name": ["linear"]}, "epsilon of dqn must be a number or a table"),
        ({"name": "linear", "start": 1, "end": 0}, "epsilon of dqn: schedule 'linear' needs the setting 'steps'"),
        (
            {"name": "linear", "start": 1, "end": 0, "steps": 1.5},
            "epsilon of dqn: setting 'steps' of schedule 'linear' must be a whole number, is 1.5",
        ),
        ({"name": "cosine", "start": 1, "end": 0, "steps": 0}, "steps=0 of schedule 'cosine' must be at least 1"),
        ({"name": "constant", "value": 1, "end": 0}, "setting of schedule 'constant' 'end' does not exist"),
        ({"name": "exponential", "start": 1, "rate": 1.1, "steps": 9}, "must be above 0 and at most 1"),
        ({"name": "exponential", "start": 1, "rate": 0.5, "steps": 9, "end": 2}, "must be within 0 and start=1.0"),
        ({"name": "piecewise", "steps": [1, 2], "values": [1]}, "it has 2 steps and 1 values"),
        ({"name": "piecewise", "steps": [], "values": []}, "it has 0 steps and 0 values"),
        ({"name": "piecewise", "steps": [5, 5], "values": [1, 2]}, "must rise from 0 or more"),
    ],
)
def test_a_wrong_schedule_is_refused_by_setting_and_owner(config, message):
    with pytest.raises(ConfigurationError) as caught:
        build_schedule(config, "epsilon of dqn")
    assert message in str(caught.value)
    assert str(caught.value).startswith("epsilon of dqn")


def test_all_faults_of_a_schedule_are_named_at_once():
    with pytest.raises(ConfigurationError) as caught:
        build_schedule({"name": "linear", "strat": 1, "steps": "x"}, "epsilon")
    assert len(caught.value.problems) == 4  # strat is unknown, steps not a number, start and end are missing


@pytest.mark.parametrize(
    ("config", "points"),
    [
        ({"name": "linear", "start": 1.0, "end": 0.0}, {0.0: 1.0, 0.25: 0.75, 1.0: 0.0}),
        ({"name": "linear", "start": 1.0, "end": 0.0, "steps": 0.5}, {0.25: 0.5, 0.5: 0.0, 0.9: 0.0}),
        ({"name": "inverse_square_root", "start": 2.0, "steps": 0.01}, {0.0: 2.0, 0.03: 1.0}),
        ({"name": "piecewise", "steps": [0, 0.5, 1], "values": [0, 1, 0]}, {0.25: 0.5, 0.5: 1.0, 0.75: 0.5}),
        ({"name": "constant", "value": 0.3}, {0.5: 0.3}),
    ],
    ids=str,
)
def test_a_schedule_over_progress_follows_the_runs_progress_not_its_steps(config, points):
    timed = build_timed({**config, "over": "progress"}, "learning_rate of ppo")
    assert {at: timed.at(10**9, at) for at in points} == pytest.approx(points)


def test_a_schedule_over_steps_does_not_follow_progress():
    timed = build_timed({"name": "linear", "start": 1.0, "end": 0.0, "steps": 100}, "learning_rate of ppo")
    assert [timed.at(25, progress) for progress in (0.0, 0.9)] == [0.75, 0.75]
    assert build_timed(0.2, "epsilon").at(10, 0.5) == 0.2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "linear", "start": 1, "end": 0, "over": "time"}, "over='time' of its schedule must be steps or prog"),
        ({"name": "linear", "start": 1, "end": 0, "over": "progress", "steps": 500}, "must be a share of the run"),
        ({"name": "linear", "start": 1, "over": "progress"}, "needs the setting 'end'"),
    ],
)
def test_a_wrong_schedule_over_progress_is_refused_with_the_reason(config, message):
    with pytest.raises(ConfigurationError) as caught:
        build_timed(config, "epsilon of dqn")
    assert message in str(caught.value) and str(caught.value).startswith("epsilon of dqn")
