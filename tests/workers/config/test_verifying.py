"""The process that verifies a configuration: it also tells what will be slower here than need be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents import checkpoints, computing
from workers.config import verifying
from workers.config.run_names import run_folder
from workers.config.schema import Config, to_yaml


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"precision": "bfloat16"}, 1), ({}, 0), ({"precision": "bfloat16", "hosts": {"other": {"learners": 1}}}, 0)],
    ids=["bfloat16", "float32", "a learner elsewhere"],
)
def test_a_processor_without_bfloat16_is_told_of_where_it_learns(
    settings: dict[str, Any],
    told: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(computing, "processor_features", lambda: "flags : fpu avx2")
    question, answer = tmp_path / "question", tmp_path / "answer"
    question.write_text(to_yaml(Config(project="p", trial="t", run="r", **settings)))
    monkeypatch.setattr("sys.argv", ["verifying", str(question), str(answer)])
    verifying.main()
    json.loads(answer.read_text())
    assert capsys.readouterr().err.count("precision=bfloat16: this processor has no instructions for it") == told


def test_a_damaged_checkpoint_that_a_resume_passes_over_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(project="p", trial="t", run="r", folder=str(tmp_path))
    folder = run_folder(config) / "checkpoints"
    checkpoints.write(folder, "00000001", checkpoints.Moment({}, {}, {}))
    damaged = checkpoints.write(folder, "00000002", checkpoints.Moment({}, {}, {}))
    damaged.write_bytes(damaged.read_bytes()[:20])
    question, answer = tmp_path / "question", tmp_path / "answer"
    question.write_text(to_yaml(config))
    monkeypatch.setattr("sys.argv", ["verifying", str(question), str(answer)])
    verifying.main()
    told = f"warning: checkpoint {damaged} is damaged; the run goes on from 00000001.safetensors\n"
    assert told in capsys.readouterr().err
