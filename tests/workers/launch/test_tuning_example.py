"""Tests of examples/tuning/tune.py: Optuna's trials are runs, a study goes on, and a run that falls behind is ended."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.launched import start, without_warren

import warren

optuna = pytest.importorskip("optuna")

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/tuning/tune.py"


@pytest.fixture
def tune() -> Any:
    spec = importlib.util.spec_from_file_location("tune", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_that_falls_behind_is_ended_and_its_trial_pruned(tune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def run(*words: str, on_evaluation: Any, **settings: Any) -> Any:
        """Report worse evaluations in each trial than in the one before."""
        given.append((words, settings["algorithm"]))
        points = [{"mean_return": 100.0 - 10 * len(given), "steps": steps} for steps in (10, 20, 30)]
        ended = next((True for point in points if on_evaluation(point) is False), False)
        return SimpleNamespace(state="stopped" if ended else "finished", evaluations=points)

    monkeypatch.setattr(warren, "train", run)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=0)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(lambda trial: tune.train(trial, ["actors=1"]), n_trials=3)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert study.best_value == 90.0 and given[0] == (("actors=1",), study.best_params)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_example_trains_and_goes_on_with_its_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("1", "broker=embedded", "total_steps=6000", "actors=1")
    for count in (1, 2):
        log = tmp_path / f"log{count}"
        process = start(str(EXAMPLE), *words, log=log, given=without_warren(), executed=True)
        assert process.wait(540) == 0, log.read_text()
        assert f"best of {count}: " in log.read_text().splitlines()[-1]
