"""Tests of a disk and a Redis that are full for a while: no process ends, and training goes on afterwards.

The default is 5 s. The time from then to the next updates is printed:
`WARREN_FULL_SECONDS=15 make test ARGS="tests/faults/test_full_servers.py -s"`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import redis
from support.league_run import LeagueOfRun
from support.training_run import TrainingRun

from workers.servers import Machine, Servers
from workers.servers.private_redis import PrivateRedis

SECONDS = float(os.environ.get("WARREN_FULL_SECONDS", "5"))
PLAIN = ("env.goal=null", "total_steps=100000000", "unroll_length=32", "algorithm.minibatch_size=64", "actors=2")
STORED = 320 << 20  # bytes of the small disk
OFTEN = ("checkpoint_every=2",)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a small file system."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={STORED}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("to mount a file system takes root, and here it is not allowed")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def run_of(kind: str, folder: Path, servers: Servers) -> Iterator[tuple[TrainingRun, redis.Redis]]:
    """Yield a run in `folder` and a client of its Redis, whose data is there too; the broker's is on another disk."""
    binary = Machine().redis() or Machine().embedded_redis()
    assert binary is not None
    own = PrivateRedis.start(binary, folder / "redis")
    urls = {"broker_url": servers.broker_url, "redis_url": own.url}
    try:
        if kind == "league":
            run: TrainingRun = LeagueOfRun(folder, *OFTEN, "league_workers=2", **urls)
        else:
            run = TrainingRun(folder, *PLAIN, *OFTEN, f"sampling={kind}", **urls)
        with run:
            yield run, redis.Redis.from_url(own.url)
    finally:
        own.stop()


def updates(run: TrainingRun) -> int:
    """Return the number of updates in the logs of all learners."""
    files = [*run.folder.glob("metrics.jsonl"), *run.folder.glob("players/*/metrics.jsonl")]
    return sum(len(file.read_bytes().splitlines()) for file in files)


def check(run: TrainingRun, fill: Callable[[], None], empty: Callable[[], None], what: str) -> None:
    """Fill a server or disk, wait and empty it; check that the same processes go on with updates."""
    run.until(lambda: updates(run) >= 10)
    before = {process.pid: process.name() for process in run.children(lambda line: "workers." in " ".join(line))}
    fill()
    full_until = time.monotonic() + SECONDS
    run.until(lambda: time.monotonic() > full_until)
    empty()
    emptied, made = time.monotonic(), updates(run)
    run.until(lambda: updates(run) > made + 1)
    seconds = time.monotonic() - emptied
    print(f"\n{what}: full for {SECONDS:g} s, new updates {seconds:.1f} s after its end")
    assert "ended with status" not in run.output
    assert all(psutil.pid_exists(pid) for pid in before)


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(480 + 2 * SECONDS)
@pytest.mark.parametrize("kind", ["gathered", "streaming", "league"])
def test_a_full_disk_ends_no_process(kind: str, small_disk: Path, servers: Servers) -> None:
    with run_of(kind, small_disk, servers) as (run, _):
        filler = small_disk / "filler"

        def fill() -> None:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(1 << 16)):
                    pass

        check(run, fill, filler.unlink, f"disk, {kind}")


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(480 + 2 * SECONDS)
@pytest.mark.parametrize("kind", ["gathered", "streaming", "league"])
def test_a_redis_that_refuses_writes_ends_no_process(kind: str, tmp_path: Path, servers: Servers) -> None:
    with run_of(kind, tmp_path, servers) as (run, client):
        client.config_set("maxmemory-policy", "noeviction")

        def fill() -> None:
            client.config_set("maxmemory", 1)

        def empty() -> None:
            client.config_set("maxmemory", 0)

        check(run, fill, empty, f"Redis, {kind}")
