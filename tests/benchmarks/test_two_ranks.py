"""Tests of benchmarks.allreduce: its ranks train together, and its figures have the meaning of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.allreduce import __main__ as allreduce
from benchmarks.allreduce import curves as allreduce_curves
from benchmarks.allreduce.processes import rank_lines
from workers.learning.allreduce import horovod_ring


def test_the_gap_of_curves_is_in_deviations_of_their_seeds() -> None:
    curves = np.array([[1.0, 10.0], [3.0, 30.0]])  # deviations 1.41 and 14.1
    assert allreduce_curves.gap(curves, curves) == 0.0
    assert allreduce_curves.gap(curves, curves + np.array([0.0, 14.0])) == pytest.approx(7.0 / 7.778, rel=1e-3)


def test_horovod_is_left_out_with_a_message_if_it_is_not_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(horovod_ring, "is_built", lambda: False)
    assert allreduce.parsed([]).backends == ["torch"]
    assert "make horovod" in capsys.readouterr().out
    assert "bf16" not in allreduce.compressions("horovod")


def test_two_ranks_train_and_end_with_equal_weights(
    redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_REDIS_URL", redis_url)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    names = ["none", "topk"]
    lines = rank_lines(2, 600, run=run_name, backend="torch", part="train", updates=2, compressions=names)
    assert [line["compression"] for line in lines if line["learner"] == 0] == names
    weights = {(line["compression"], line["weights"]) for line in lines}
    assert len(lines) == 4
    assert len(weights) == 2
    assert {line["optimizer_steps"] for line in lines} == {80}


def test_no_round_begins_that_would_probably_end_too_late(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(allreduce.time, "monotonic", lambda: now[0])
    made = []
    for turn in allreduce.turns(5, seconds=100.0):
        made.append(turn)
        now[0] += 30.0
    assert made == [0, 1, 2]
    assert "3 rounds of 5" in capsys.readouterr().out
    now[0] = 0.0
    for _ in allreduce.turns(1, seconds=1.0):  # there is always one round
        made.append(9)
        now[0] += 30.0
    assert made[-1] == 9 and capsys.readouterr().out == ""


def test_curves_that_are_kept_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[tuple[str, int]] = []

    class Ranks:
        def __init__(self, of: int, **job: Any) -> None:
            self.left = [*job["curves"]]

        def until(self, good: Any, limit: float) -> dict[str, Any]:
            if len(trained) == 6:  # the command has no time left
                trained.append(("late", 0))
                raise TimeoutError
            trained.append(self.left.pop(0))
            name, seed = trained[-1]
            return {"compression": name, "seed": seed, "curve": [None, 10.0 * seed, 20.0 * seed], "seconds": 1.0}

        def __enter__(self) -> Ranks:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(allreduce_curves, "RankProcesses", Ranks)
    given = (tmp_path, 3, 3, 100.0, lambda: "run", None)
    assert allreduce_curves.curves(*given)["curve_gap"] is None
    assert "goes on" in capsys.readouterr().out
    figures = allreduce_curves.curves(*given)
    assert figures["seeds"] == [1, 2, 3] and figures["curve_gap"] == 0.0
    assert len(trained) == 13  # 3 seeds of 4 sides, and the one that was late
