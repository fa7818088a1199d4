"""A folder in the machine's shared memory that stands in for /dev/shm in a test."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.codec import shared_memory


@contextmanager
def shared_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder; processes that the test starts use it too."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("this machine has no /dev/shm")
    path = Path(f"/dev/shm/test-{secrets.token_hex(6)}")
    path.mkdir()
    monkeypatch.setenv(shared_memory.PLACE, str(path))
    try:
        yield path
    finally:
        shutil.rmtree(path)
