"""Tests of the benchmark of a league's rate in one process."""

from __future__ import annotations

from benchmarks.league import decisions


def test_each_side_runs_in_its_own_process_and_the_least_ratio_is_reported(monkeypatch):
    asked = []

    def run(game, seconds, environment):
        asked.append((game, seconds, environment.get("CC")))
        return {("kuhn", None): 300.0, ("kuhn", decisions.NO_COMPILER): 100.0}.get(asked[-1][::2], 50.0)

    monkeypatch.setattr(decisions, "_in_a_process", run)
    found = decisions.measure(["kuhn", "rps"], 1.5, rounds=3)
    assert (found["kuhn_compiled"], found["kuhn_torch"], found["kuhn_ratio"]) == (300, 100, 3.0)
    assert found["league_decisions_ratio"] == found["rps_ratio"] == 1.0
    assert asked[:2] == [("kuhn", 1.5, None), ("kuhn", 1.5, decisions.NO_COMPILER)] and len(asked) == 12


def test_a_rate_counts_all_players_decisions():
    assert decisions.rate("rps", 0.2) > 1000
