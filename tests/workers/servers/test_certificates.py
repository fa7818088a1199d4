"""Tests of certificates for TLS in folders that cannot be written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workers.servers.__main__ import main


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes certificates, is not installed")
@pytest.mark.parametrize("name, why", [("file", "File exists"), ("file/tls", "Not a directory")])
def test_a_folder_that_cannot_be_made_is_one_error(
    tmp_path: Path, name: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["certificates", str(tmp_path / name), "rabbitmq"]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / name}: cannot be written: {why}; name another folder\n"
