"""Facts and findings about this machine: disk, shared memory, file handles, threads, cores, memory."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from workers.config import hosts
from workers.config.schema import Config
from workers.doctor.broker_checks import size
from workers.doctor.findings import Finding, Level

SHARED_MEMORY = Path("/dev/shm")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
PIDS = Path("/sys/fs/cgroup")  # of pids.max and pids.current, which count threads
DISK_NEEDED, DISK_WANTED = 200 << 20, 2 << 30  # bytes: for logs and a few checkpoints; for a long run
SHARED_NEEDED = 48 << 20  # bytes; a container has 64 MiB unless told otherwise
HANDLES_NEEDED, HANDLES_WANTED = 256, 1024
PROCESSES_A_CORE = 4  # processes wait for each other often enough for so many to share a core
THREADS_A_PROCESS = 16  # learners and actors have about twelve
MEMORY_A_PROCESS = 350 << 20  # bytes; torch alone takes two thirds of it


@dataclass(frozen=True)
class MachineFacts:
    """Facts about a machine, in bytes; `shared` is None without /dev/shm, `run_folder` if none is checked."""

    run_folder: Path | None
    disk_free: int
    shared: int | None
    handles: int  # open files a process may have
    cores: float  # by the affinity of this process and the quota of its container
    memory: int  # available
    threads: int | None = None  # that may still begin; None: no limit


def inspect(folder: Path | None) -> MachineFacts:
    """Gather the facts about this machine and the run folder `folder`, which need not exist yet."""
    existing = Path(folder or "/").resolve()
    while not existing.exists():
        existing = existing.parent
    shared = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MachineFacts(
        folder, shutil.disk_usage(existing).free, shared, handles, cores(), psutil.virtual_memory().available, threads()
    )


def cores(quota: Path = CPU_QUOTA) -> float:
    """Return the number of cores that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="utf-8").split()
        return min(float(count), int(allowed) / int(period))
    except (OSError, ValueError):  # no cgroup, or no limit ("max")
        return float(count)


def threads(pids: Path = PIDS) -> int | None:
    """Return the number of threads that may still begin, for this user and in this container; None without a limit."""
    left = []
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY and os.geteuid() != 0:  # root has none
        left.append(most - sum(_threads_of(os.geteuid())))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no limit ("max")
        left.append(
            int((pids / "pids.max").read_text(encoding="utf-8"))
            - int((pids / "pids.current").read_text(encoding="utf-8"))
        )
    return max(0, min(left)) if left else None


def _threads_of(user: int) -> Iterator[int]:
    for process in psutil.process_iter(["uids", "num_threads"]):
        if process.info["uids"] is not None and process.info["uids"].real == user:
            yield process.info["num_threads"] or 0


def processes_of(config: Config) -> int:
    """Return the number of processes, without servers, that the launcher of the run starts on this machine."""
    if any(hosts.problems(config)):  # reported elsewhere; the rest is checked as if there were no other hosts
        config = replace(config, hosts={}, host=None)
    return sum(len(ranks) for _, _, ranks in hosts.shares(config))


def judge(facts: MachineFacts, processes: int) -> Iterator[Finding]:
    """Yield the findings for a run with this number of processes."""
    if facts.run_folder is not None:
        yield _disk(facts)
    yield _shared_memory(facts)
    yield _handles(facts)
    yield _threads(facts, processes)
    yield _cores(facts, processes)
    yield _memory(facts, processes)


def _disk(facts: MachineFacts) -> Finding:
    found, remedy = f"{size(facts.disk_free)} free in {facts.run_folder}", "free some, or choose another folder=..."
    if facts.disk_free < DISK_NEEDED:
        return Finding("run folder", Level.error, f"only {found}", remedy)
    if facts.disk_free < DISK_WANTED:
        return Finding("run folder", Level.warning, f"only {found}", remedy)
    return Finding("run folder", Level.ok, found)


def _shared_memory(facts: MachineFacts) -> Finding:
    if facts.shared is None:
        return Finding("shared memory", Level.unseen, f"no {SHARED_MEMORY} here", "")
    found = f"{size(facts.shared)} free in {SHARED_MEMORY}"
    if facts.shared < SHARED_NEEDED:
        remedy = "give the container more: docker run --shm-size=1g, or shm_size: 1g in a Compose file"
        return Finding("shared memory", Level.warning, f"only {found}", remedy)
    return Finding("shared memory", Level.ok, found)


def _handles(facts: MachineFacts) -> Finding:
    found = f"{facts.handles:,} per process" if facts.handles != resource.RLIM_INFINITY else "no limit"
    if facts.handles == resource.RLIM_INFINITY or facts.handles >= HANDLES_WANTED:
        return Finding("file handles", Level.ok, found)
    level = Level.error if facts.handles < HANDLES_NEEDED else Level.warning
    return Finding("file handles", level, f"only {found}", "ulimit -n 65536, or LimitNOFILE= of the service")


def _threads(facts: MachineFacts, processes: int) -> Finding:
    if facts.threads is None:
        return Finding("threads", Level.ok, "no limit")
    wanted = processes * THREADS_A_PROCESS
    found = f"{facts.threads:,} may still begin; {_count(processes)}: about {wanted:,}"
    if wanted > facts.threads:
        remedy = (
            "raise ulimit -u, or the container's pids limit: docker run --pids-limit, pids_limit: in a Compose file"
        )
        return Finding("threads", Level.warning, found, remedy)
    return Finding("threads", Level.ok, found)


def _cores(facts: MachineFacts, processes: int) -> Finding:
    found = f"{_count(processes)} on {facts.cores:g} cores"
    if processes > PROCESSES_A_CORE * facts.cores:
        return Finding(
            "cores", Level.warning, found, "they take turns: fewer actors= are as fast, or use more machines"
        )
    return Finding("cores", Level.ok, found)


def _memory(facts: MachineFacts, processes: int) -> Finding:
    wanted = processes * MEMORY_A_PROCESS
    found = f"{size(facts.memory)} available; {_count(processes)}: about {size(wanted)}"
    if wanted > facts.memory:
        return Finding("memory", Level.warning, found, "start fewer processes, or small networks only")
    return Finding("memory", Level.ok, found)


def _count(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"
