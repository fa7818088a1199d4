"""Tests of the benchmark of scoring a large league."""

from __future__ import annotations

import pytest

from benchmarks.league import scores
from workers.evaluation.exact_cells import ExactEvaluator


def test_a_score_includes_the_search_for_the_least_exploitable_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    found_by = []
    gain_within = ExactEvaluator.gain_within

    def noted(evaluator: ExactEvaluator, slots, *rest):  # type: ignore[no-untyped-def]
        best = evaluator.returns.least_exploitable
        found_by.append((len(slots), None if best is None else len(best.slots), evaluator.step(slots)))
        return gain_within(evaluator, slots, *rest)

    monkeypatch.setattr(ExactEvaluator, "gain_within", noted)
    figures = scores.measure("kuhn", players=6, rounds=2)
    assert found_by == [(6, 6, False), (7, 7, False), (8, 8, False)], "each mixture is found, and of all players"
    assert figures["search_s"] > 0.0 and figures["score_s"] >= figures["search_s"]
