"""Tests of files that are written in full or not at all."""

from pathlib import Path

import pytest

from warren import files
from warren.files import read_json, write_whole


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "outcome.json"
    write_whole(path, '{"state": "stopped"}')

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'$"):
        write_whole(path, '{"state": "solved"}')
    assert read_json(path) == {"state": "stopped"}
    assert [child.name for child in tmp_path.iterdir()] == ["outcome.json"]


def test_a_path_that_cannot_be_written_is_named_itself(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "no" / "file", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(OSError, match=f"{why}.*: '{path}'$"):
            write_whole(path, "text")


@pytest.mark.parametrize("content", ["", '{"state": "sto', "[1]"])
def test_a_missing_or_malformed_file_reads_as_an_empty_object(tmp_path: Path, content: str) -> None:
    path = tmp_path / "outcome.json"
    path.write_text(content)
    assert read_json(path) == {}
    assert read_json(tmp_path / "missing.json") == {}
