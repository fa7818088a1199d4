"""Fixtures shared by the tests of the league's commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from league.redis.store import Store

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(store: Store, redis_url: str, run_name: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command's `main` on the league of `store`; it returns (status, stdout, stderr)."""

    def run(main: Callable[[list[str]], int], *arguments: object) -> tuple[int, str, str]:
        status = main(["--redis", redis_url, "--run", run_name, *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
