"""The processes of private servers, as the system sees them."""

from __future__ import annotations

import os

import psutil

from workers.servers import Servers


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that still run; zombies do not."""
    return [one for one in processes if one.is_running() and _status(one) != psutil.STATUS_ZOMBIE]


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def servers_of(found: Servers) -> list[psutil.Process]:
    """Return every process that was started for these servers."""
    return [process for process in descendants(os.getpid()) if _guards(process, found)]


def _guards(process: psutil.Process, found: Servers) -> bool:
    guards = {child._guard.pid for child in found.children}
    return bool(guards & {process.pid, *(parent.pid for parent in process.parents())})
