"""Tests that leagues of teams, of roles and of three players learn; runs are counted in decisions, not in seconds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.league import __main__ as command
from benchmarks.league import teams
from benchmarks.league.teams import Run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def few_games(monkeypatch):
    monkeypatch.setattr(teams, "GAMES", 3072)


def learn(run, decisions):
    while run.decisions < decisions:
        run.league.progress = run.decisions / decisions
        run.league.round()
    return run


def learned(game, decisions):
    return learn(Run(game, seed=1), decisions)


def test_a_team_of_two_learns_to_beat_its_first_snapshot():
    run = learned("teams", 80_000)
    main, first = run.newest(), run.snapshot(0)
    assert len(run.snapshots()) > 1 and run.swapped(main, first).mean > 0.75
    assert 0.4 < run.swapped(first, first).mean < 0.6


def test_both_roles_learn_to_beat_the_first_snapshot_of_the_other():
    found = teams.of_roles(learned("roles", 120_000))
    caught = found["caught_by_first"][0]
    assert found["catcher"][0] > caught + 0.25 and found["runner"][0] > 1.0 - caught + 0.1


def test_of_three_players_the_newest_gains_from_two_first_snapshots():
    run = learned("three", 80_000)
    found = teams.of_three(run)
    assert found["first"][0] > 0.1
    assert found["rating_of_last"][0] > found["rating_of_first"][0] + 2.0
    mean, lower, upper = found["rating_of_last"]
    assert lower < mean < upper


def test_gains_are_those_of_the_team_that_is_asked_for():
    gains = np.zeros((3, 512))
    for team in range(3):
        run = Run("three", seed=1)  # the same games each time
        gains[team] = run.seated([run.snapshot(0)] * 3, team, 512)
    assert (gains.sum(axis=0) == 0.0).all() and (gains != 0.0).any(axis=1).all()


def test_perfect_players_of_chase_end_in_a_catch_from_two_of_24_cells():
    assert teams.caught_under_best_play() == pytest.approx(2 / 24)


def test_a_share_counts_a_draw_as_half_a_win():
    found = teams.share(np.array([1.0, 0.0, -1.0, 1.0]))
    assert found.mean == 0.625 and 0.0 <= found.lower < found.mean < found.upper <= 1.0


def test_the_command_ends_in_figures_of_each_seed(monkeypatch, capsys):
    monkeypatch.setattr(teams, "GAMES", 512)
    monkeypatch.setattr(Run, "learn", lambda run, seconds: learn(run, 80_000))
    monkeypatch.setattr("sys.argv", ["league", "teams", "--games", "teams", "--seeds", "1"])
    command.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    ((mean, lower, upper),) = found["teams_first"]
    assert lower <= mean <= upper and found["teams_decisions"][0] >= 80_000


def test_a_run_without_a_snapshot_that_has_learned_is_refused(monkeypatch):
    monkeypatch.setattr(Run, "learn", lambda run, seconds: None)
    with pytest.raises(SystemExit, match=r"--seconds: 0\.1 is too short for teams; use more"):
        teams.measure(["teams"], 0.1, 1)
