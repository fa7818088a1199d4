"""Tests of the zoo: its table in docs/algorithms.md is made from kept runs, and no run is made twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import zoo
from workers.config.schema import CONF

RUN = {"environment": "CartPole-v1", "algorithm": "ppo", "goal": 475.0, "limit": 900, "seconds": 1.0, "curve": []}


def run(name: str, seed: int, steps: int | None, evaluation: float) -> dict[str, Any]:
    return {**RUN, "experiment": name, "seed": seed, "steps": steps, "evaluation": evaluation}


def test_the_page_has_the_tables_of_the_runs_that_are_kept():
    runs = zoo.kept()
    assert runs and {one["experiment"] for one in runs} <= {path.stem for path in CONF.glob("experiment/*.yaml")}
    assert len({(one["experiment"], one["seed"]) for one in runs}) == len(runs)
    text = zoo.PAGE.read_text()
    assert zoo.written(text, zoo.tables(runs)) == text, "run: python -m benchmarks.zoo table"


def test_a_row_has_median_and_range_and_a_run_that_missed_the_goal_counts_its_limit():
    runs = [run("b", 1, 100, 480.0), run("b", 2, None, 300.0), run("b", 3, 200, 500.0), run("a", 1, None, 9.0)]
    rows = zoo.table(runs).splitlines()[2:]
    assert rows == [
        "| `a` | CartPole-v1, ppo | 475 | 0 of 1 | - | 9 |",
        "| `b` | CartPole-v1, ppo | 475 | 2 of 3 | 200 (100 to 200) | 480 |",
    ]


def test_a_cell_has_the_median_steps_of_the_algorithms_best_experiment():
    slow, fast = [run("slow", seed, 900, 0.0) for seed in (1, 2)], [run("fast", 1, 100, 0.0), run("fast", 2, 300, 0.0)]
    luck = [run("luck", 1, 50, 0.0), run("luck", 2, None, 0.0), run("luck", 3, None, 0.0)]
    other = [{**one, "environment": "Acrobot-v1", "algorithm": "dqn", "goal": -100.0} for one in luck]
    assert zoo.by_game([*slow, *fast, *luck, *other]).splitlines() == [
        "| | `Acrobot-v1` (-100) | `CartPole-v1` (475) |",
        "|---|---|---|",
        "| `dqn` | missed |  |",
        "| `ppo` |  | 100 |",
    ]


def test_only_runs_that_are_not_kept_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[Any] = []

    def make(name: str, seed: int, words: Any, folder: str) -> Any:
        made.append((name, seed, words))
        return run(name, seed, 7, 1.0)

    monkeypatch.setattr(zoo, "made", make)
    kept = tmp_path / "zoo.jsonl"
    kept.write_text(json.dumps(run("cartpole", 1, 5, 1.0)) + "\n")
    zoo.run(["cartpole", "acrobot"], 2, ["actors=1"], kept)
    assert [one[:2] for one in made] == [("acrobot", 1), ("cartpole", 2), ("acrobot", 2)]
    assert len(zoo.kept(kept)) == 4 and made[0][2] == ["actors=1"]
