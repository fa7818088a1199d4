"""`python -m league.models`: changes the pool by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import redis
from safetensors.numpy import save
from support.store_fixtures import store_on

from league.cli import models
from league.matchmaking.view import ModelRef
from league.models.pool import Pool


@pytest.fixture
def pool(redis_url: str, run_name: str) -> Pool:
    return Pool(store_on(redis_url, f"warren.{run_name}").redis, f"warren.{run_name}:")


@pytest.fixture
def command(pool: Pool, redis_url: str, run_name: str, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Return a function that runs a command; it returns (exit status, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = models.main(["--redis", redis_url, "--run", run_name, "--json", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(save({"layer": np.arange(4, dtype=np.float32)}))
    return path


def test_a_model_is_added_listed_replaced_and_removed(command, pool: Pool, file: Path) -> None:  # type: ignore[no-untyped-def]
    assert command("add", "main", file, "--step", 7, "--freeze")[:2] == (0, "main@1\n")
    assert command("replace", "main", file, "--parent", "main@1")[:2] == (0, "main@2\n")
    rows = [json.loads(line) for line in command("list")[1].splitlines()]
    assert [(row["model"], row["frozen"], row["step"], row["parent"]) for row in rows] == [
        ("main@1", True, 7, ""),
        ("main@2", False, 0, "main@1"),
    ]
    assert command("lineage", "main@2")[1] == "main@2 <- main@1\n"
    assert command("remove", "main@2")[0] == 0
    assert command("remove", "main@1")[0] == 2
    assert command("remove", "main@1", "--frozen")[0] == 0
    assert pool.models() == []


def test_an_exported_model_equals_the_added_file(command, pool: Pool, file: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command("add", "main", file)
    assert command("freeze", "main@1")[1] == "main@1\n"
    assert command("export", "main@1", tmp_path / "out")[0] == 0
    assert (tmp_path / "out").read_bytes() == file.read_bytes() == pool.get("main", 1).data
    command("set", "main@1", "note=best", "rate=0.5")
    shown = json.loads(command("show", "main@1")[1])
    assert shown["note"] == "best" and shown["rate"] == 0.5 and shown["frozen"]
    assert pool.info(ModelRef("main", 1)).attributes == {"note": "best", "rate": 0.5}  # type: ignore[union-attr]


def test_a_wrong_command_prints_an_error_without_a_traceback(command, file: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "text").write_text("no weights")
    (tmp_path / "run").write_bytes(save({"policy.layer": np.zeros(4), "algorithm.moments": np.zeros(4)}))
    (tmp_path / "other").write_bytes(save({"layer": np.zeros(5, np.float32)}))
    for arguments, message in (
        (("add", "main", tmp_path / "text"), "is not a safetensors file"),
        (("add", "main", tmp_path / "missing"), "cannot be read"),
        (("add", "main", tmp_path / "run"), "is a checkpoint of a run, with more than a model's weights"),
        (("replace", "main", file), "holds no model of 'main' to replace; add one"),
        (("show", "main@4"), "main@4 is not in the pool"),
        (("restore", tmp_path), "holds no league"),
    ):
        status, _, error = command(*arguments)
        assert status == 2 and message in error and error.startswith("error: ") and "Traceback" not in error
    command("add", "main", file, "--version", 5)
    assert "versions only go up" in command("add", "main", file, "--version", 5)[2]
    assert "other: layer is [5], and in main@5 [4]; " in command("replace", "main", tmp_path / "other")[2]


def test_a_path_that_cannot_be_written_is_named_in_one_line(command, file: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command("add", "main", file)
    for arguments in (("export", "main@1", tmp_path / "absent" / "out"), ("save", file / "league")):
        status, _, error = command(*arguments)
        assert status == 2 and error.startswith(f"error: {arguments[-1].parent}") and error.count("\n") == 1, error
        assert "name a place that is there and that you may use" in error


@pytest.mark.parametrize("words", [("lineage", "main@1"), ("save", "folder"), ("add", "main", "file")])
def test_a_run_without_a_league_is_refused(
    words: tuple[str, ...],
    pool: Pool,
    redis_url: str,
    run_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert models.main(["--redis", redis_url, "--run", f"{run_name}x", *words]) == 2
    assert f"run with a league '{run_name}x' does not exist; did you mean" in capsys.readouterr().err
    assert not Path("folder").exists()


@pytest.fixture
def plain(redis_url: str, run_name: str) -> Pool:
    """Return the pool of a run that trains without a league."""
    return Pool(redis.Redis.from_url(redis_url), f"warren.{run_name}:")


def test_models_of_a_plain_run_are_listed_shown_and_exported(
    plain: Pool, redis_url: str, run_name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--redis", redis_url, "--run", run_name, "--json"]
    assert models.main([*where, "list"]) == 2
    assert f"run with models '{run_name}' does not exist" in capsys.readouterr().err
    plain.put("main", 3, 500, file.read_bytes())
    for words in (["list"], ["show", "main@3"]):
        assert models.main([*where, *words]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["model"], shown["step"], shown["frozen"]) == ("main@3", 500, False)
    assert models.main([*where, "export", "main@3", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_bytes() == file.read_bytes()
    assert models.main([*where, "show", "main@4"]) == 2
    assert "main@4 is not in the pool" in capsys.readouterr().err


def test_what_changes_models_of_a_plain_run_is_refused(
    plain: Pool, redis_url: str, run_name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.put("main", 3, 500, file.read_bytes())
    for words in (("freeze", "main@3"), ("remove", "main@3"), ("add", "main", file), ("save", tmp_path / "saved")):
        assert models.main(["--redis", redis_url, "--run", run_name, *map(str, words)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: run with a league '{run_name}' does not exist")
        assert "lists, shows and exports its models alone" in line
    assert [(str(info.ref), info.frozen) for info in plain.models()] == [("main@3", False)]


def test_a_league_is_saved_from_the_command_line(command, pool: Pool, file: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command("add", "main", file, "--freeze")
    assert command("save", tmp_path / "saved")[0] == 0
    assert (tmp_path / "saved" / "models" / "main@1.safetensors").read_bytes() == file.read_bytes()
