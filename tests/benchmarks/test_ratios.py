"""Tests of the benchmarks' ratios and their intervals."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from benchmarks.apparatus.ratios import with_intervals
from benchmarks.replay.__main__ import to_best


def test_a_ratio_of_rounds_has_its_interval_and_p_by_students_t():
    ratios = [1.1, 1.3, 1.2, 1.05]
    found = with_intervals({"ours_vs_theirs": ratios})
    logs = [math.log(ratio) for ratio in ratios]
    test = stats.ttest_1samp(logs, 0.0)
    bounds = test.confidence_interval(0.95)
    assert found["ours_vs_theirs"] == pytest.approx(1.15)
    assert found["ours_vs_theirs_interval"] == pytest.approx([math.exp(bounds.low), math.exp(bounds.high)], abs=1e-3)
    assert found["ours_vs_theirs_p"] == pytest.approx(test.pvalue, abs=1e-4)


def test_one_round_has_no_interval_and_equal_rounds_are_certain():
    assert with_intervals({"x": [2.0]}) == {"x": 2.0}
    assert with_intervals({"x": [1.0, 1.0]}) == {"x": 1.0, "x_interval": [1.0, 1.0], "x_p": 1.0}
    assert with_intervals({"x": [2.0, 2.0]}) == {"x": 2.0, "x_interval": [2.0, 2.0], "x_p": 0.0}


def test_a_replays_ratios_are_to_the_best_peer_of_each_case_and_the_least_counts():
    found = {
        "floats": {
            "warren": {"insert": [4.0, 6.0], "sample": [1.0, 1.0], "prioritized": [2.0, 2.0]},
            "slow": {"insert": [1.0, 1.0], "sample": [1.0, 1.0]},
            "fast": {"insert": [2.0, 2.0], "sample": [0.5, 0.5]},
        },
        "pixels": {"warren": {"insert": [3.0, 3.0], "sample": [1.0, 1.0]}, "slow": {"insert": [2.0, 2.0]}},
    }
    medians = {
        case: {side: {k: sum(v) / 2 for k, v in of.items()} for side, of in s.items()} for case, s in found.items()
    }
    ratios = to_best(found, medians)
    assert (ratios["insert_vs_best_floats"], ratios["insert_vs_best_pixels"], ratios["insert_vs_best"]) == (
        2.5,
        1.5,
        1.5,
    )
    assert (ratios["sample_vs_best_floats"], ratios["sample_vs_best_pixels"], ratios["sample_vs_best"]) == (
        1.0,
        None,
        1.0,
    )
    assert ratios["prioritized_vs_best"] is None and "insert_vs_best_floats_interval" in ratios
