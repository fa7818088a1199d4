"""Tests of timing: the shares of a process's time."""

from __future__ import annotations

from workers.runtime.timing import Timing


def test_each_stages_share_of_the_time_is_reported() -> None:
    timing = Timing()
    timing.add("update", 3.0)
    timing.add("update", 1.0)
    timing.add("publisher: encode", 0.5)
    with timing.stage("check"):
        pass
    shares = timing.shares()
    assert (shares["update"]["seconds"], shares["update"]["times"], shares["update"]["us"]) == (4.0, 2, 2_000_000)
    timing.add("update/forward", 0.25)
    lines = [line.split("  ")[0] for line in timing.lines()]
    assert lines == ["update", "update/forward", "check", "publisher: encode"]
