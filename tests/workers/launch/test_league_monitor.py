"""Tests of the end of a league by its goal, and of its last lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workers.launch.kinds.league_monitor import Goal, report_end


def reached(goal: float | None, *mixtures: float | None) -> list[bool]:
    it = Goal(goal)
    found = []
    for moment, mixture in enumerate(mixtures):
        score = {"time": float(moment), "mixture": mixture}
        found.append(it.reached(score))
        assert it.reached(score) is found[-1], "a score counts once, however often it is passed"
    return found


def test_a_goal_has_to_hold_for_three_scores_in_a_row() -> None:
    looks = (0.0597, 0.0138, 0.0569, 0.0149, 0.015, 0.011)
    assert reached(0.015, *looks) == [False, False, False, False, False, True]


@pytest.mark.parametrize(("goal", "mixture"), [(None, 0.0), (0.015, None)])
def test_nothing_is_reached_without_a_goal_or_a_mixture(goal: float | None, mixture: float | None) -> None:
    assert not any(reached(goal, *4 * [mixture]))
    assert not Goal(goal).reached({})


def test_half_drawn_pictures_are_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pictures").mkdir()
    for name in ("ratings.png", ".lineage.png", ".ratings.png.7.tmp"):
        (tmp_path / "pictures" / name).touch()
    assert report_end(tmp_path, {"state": "finished", "steps": 1, "seconds": 2.0}, 0) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("picture")] == [f"picture {tmp_path}/pictures/ratings.png"]


def test_an_ended_league_says_how_to_play_against_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score = {"time": 1.0, "frozen": 3, "games": 12, "mixture": None, "references": {"uniform": 0.5}}
    (tmp_path / "evaluation.jsonl").write_text(json.dumps(score) + "\n")
    report_end(tmp_path, {"state": "finished", "steps": 1, "seconds": 2.0}, 0)
    assert f"python -m workers.play {tmp_path}" in capsys.readouterr().out
