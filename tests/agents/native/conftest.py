"""Setting of tests of the compiled library: skipped without a C compiler; the default choice is restored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents.native import library


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    if library.library() is None:
        pytest.skip("no C compiler")
    yield
    library.choose("auto")
