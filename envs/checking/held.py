"""Leaks: a process's memory, open files, threads and children, measured before and after."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import NamedTuple

import psutil

from envs.checking.report import Report

MIB = 1 << 20
COPIES = 5  # copies made and closed one after another
MEMORY_A_COPY = 4 * MIB  # bytes; an allocator may keep this much
MEMORY = 8 * MIB  # bytes by which memory may grow in the second half of the steps
MEMORY_A_STEP = 512  # bytes a step, over many steps


class Held(NamedTuple):
    """Measurements of one process."""

    memory: int  # bytes that are resident
    files: int
    threads: int
    processes: int


def held() -> Held:
    """Measure this process now, after collecting unreachable objects."""
    gc.collect()
    process = psutil.Process()
    files = process.num_fds() if hasattr(process, "num_fds") else 0
    return Held(process.memory_info().rss, files, process.num_threads(), len(process.children(recursive=True)))


def memory() -> int:
    """Return the resident bytes of this process."""
    resident: int = psutil.Process().memory_info().rss
    return resident


def check_copies(report: Report, use_one: Callable[[], None]) -> None:
    """Report whether closed copies leave something behind; `use_one` makes one, plays a little, and closes it."""
    use_one()
    before = held()
    for _ in range(COPIES):
        use_one()
    after = held()
    left = [
        f"{(now - then) / COPIES:.3g} {what}"
        for what, then, now in zip(Held._fields[1:], before[1:], after[1:], strict=True)
        if now - then >= COPIES
    ]
    if (grown := (after.memory - before.memory) / COPIES) > MEMORY_A_COPY:
        left.append(f"{grown / MIB:.1f} MiB of memory")
    if left:
        report.problem("leaks", f"each copy that is made and closed leaves {', '.join(left)}; let close() end them")
    else:
        report.ok("leaks", f"{COPIES} copies made and closed leave nothing open")


def check_growth(report: Report, measured: list[int], steps: int) -> None:
    """Report whether memory grows with the steps; `measured` holds the bytes after each quarter of `steps`."""
    grown = measured[-1] - measured[1]
    if grown > max(MEMORY, MEMORY_A_STEP * steps // 2) and measured[-1] - measured[-2] > grown // 4:
        report.problem(
            "memory",
            f"grows by {grown / (steps - steps // 2):,.0f} bytes a step ({grown / MIB:.0f} MiB in the second half of "
            f"{steps:,}); does the environment keep what it has seen?",
        )
    else:
        report.ok("memory", f"{max(grown, 0) / MIB:.1f} MiB more in the second half of {steps:,} steps")
