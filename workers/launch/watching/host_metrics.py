"""The launcher's metrics for Prometheus: of its run, its host and all its processes, read when it is asked."""

from __future__ import annotations

import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import redis

from tasks import brokers
from tasks.admin.dead_letters import DeadLetters
from tasks.topology import Topology
from warren.errors import BrokerError
from workers.launch.health_check import HealthCheck
from workers.launch.processes.supervisor import Managed, Supervisor
from workers.launch.watching.server_watch import ServerWatch
from workers.runtime.metrics_endpoint import FOLDER, Endpoint, Sample, families

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ANSWERS_WITHIN = 1.0  # s that a process may take
AT_ONCE = 16  # processes that are asked at the same time
SCRIPT = "workers.script"  # runs a program of the user's own, which has no endpoint
DEAD_EVERY, COUNTED_WITHIN = 10.0, 2.0  # s between counts of the dead letters, and s that a count may take


class HostMetrics:
    """The endpoint of one host's launcher. `environment`: variables by which its processes report their ports."""

    def __init__(self, folder: Path, app: Any, topology: Topology) -> None:
        self._folder, self._app, self._topology = folder, app, topology
        self._ports = Path(tempfile.mkdtemp(prefix="warren-metrics-"))
        self.environment = {FOLDER: str(self._ports)}
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="metrics")
        self._progress: dict[str, tuple[int, float]] = {}  # player -> (steps, since when)
        self._endpoint: Endpoint | None = None
        self._stopped = False
        self._dead: tuple[float, int | None] = (float("-inf"), None)

    def start(
        self,
        address: str,
        port: int,
        supervisor: Supervisor,
        watch: ServerWatch,
        health: HealthCheck,
    ) -> str:
        """Listen from now on; return the URL. Raises ConfigurationError for a port that is taken."""

        def collect() -> list[Metric]:
            try:
                own = [*_of_processes(supervisor), *_of_host(self._folder), *self._of_run(watch, health)]
                return [*self._merged(own, [one for one in list(supervisor.children) if one.alive])]
            except (RuntimeError, CancelledError):
                if self._stopped:  # meanwhile: the pool takes no more work
                    return []
                raise

        self._endpoint = Endpoint(collect, address, port)
        return f"http://{address}:{self._endpoint.port}/metrics"

    def stop(self) -> None:
        """Stop listening, and remove the processes' reports."""
        if self._endpoint is not None:
            self._endpoint.close()
        self._stopped = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._ports, ignore_errors=True)

    def _of_run(self, watch: ServerWatch, health: HealthCheck) -> Iterator[Sample]:
        for server, seconds in watch.away_for().items():
            yield Sample("warren_server_away_seconds", seconds, {"server": server})
        for queue, waiting in dict(watch.depths).items():
            yield Sample("warren_queue_messages", waiting, {"queue": queue})
        if (dead := self._dead_letters()) is not None:
            yield Sample("warren_dead_letters", dead)
        now = time.time()
        for player, count in dict(health.steps).items():
            labels = {"player": player or "main"}
            known = self._progress.get(player)
            if known is None or known[0] != count or player in health.excused:
                self._progress[player] = (count, now)
            yield Sample("warren_run_steps_total", count, labels)
            yield Sample("warren_last_progress_timestamp_seconds", self._progress[player][1], labels)

    def _dead_letters(self) -> int | None:
        """Return the number of dead letters, a few seconds old at most; None if unknown."""
        counted_at, found = self._dead
        if time.monotonic() - counted_at > DEAD_EVERY:
            counting = self._pool.submit(self._count_dead)
            try:
                found = counting.result(COUNTED_WITHIN)
            except TimeoutError:  # a broker that hangs
                found = None
            self._dead = (time.monotonic(), found)
        return found

    def _count_dead(self) -> int | None:
        if not brokers.of(self._app).dead_letters:
            return None
        try:
            with DeadLetters(self._app, self._topology) as letters:
                return letters.count()
        except (BrokerError, redis.RedisError, *brokers.GONE):
            return None

    def _merged(self, own: Iterable[Sample], processes: list[Managed]) -> Iterator[Metric]:
        """Yield the launcher's families, then those of all processes, with a label that names the process."""
        told = list(self._pool.map(self._ask, processes))
        answers = [
            Sample("warren_process_answers", int(found is not None), {"process": one.name})
            for one, found in zip(processes, told, strict=True)
            if SCRIPT not in one.spec.command
        ]
        yield from families([*own, *answers])
        merged: dict[str, Metric] = {}
        for one, found in zip(processes, told, strict=True):
            for family in found or ():
                kept = merged.setdefault(family.name, family)
                samples = [type(of)(of.name, {**of.labels, "process": one.name}, of.value) for of in family.samples]
                kept.samples = samples if kept is family else [*kept.samples, *samples]
        yield from merged.values()

    def _ask(self, one: Managed) -> list[Metric] | None:
        """Return the metrics of a process; None if it does not answer."""
        from prometheus_client.parser import text_string_to_metric_families

        try:
            port = int((self._ports / one.name).read_text(encoding="utf-8"))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWERS_WITHIN) as reply:
                return list(text_string_to_metric_families(reply.read().decode()))
        except (OSError, ValueError):
            return None


def _of_processes(supervisor: Supervisor) -> Iterator[Sample]:
    for one in list(supervisor.children):
        labels = {"process": one.name, "role": one.spec.role}
        yield Sample("warren_process_up", int(one.alive), labels)
        yield Sample("warren_process_restarts_total", one.restarts, labels)
        yield Sample("warren_process_given_up", int(bool(one.given_up)), labels)


def _of_host(folder: Path) -> Iterator[Sample]:
    disk, memory = shutil.disk_usage(folder), psutil.virtual_memory()
    yield Sample("warren_disk_free_bytes", disk.free)
    yield Sample("warren_disk_size_bytes", disk.total)
    yield Sample("warren_memory_available_bytes", memory.available)
    yield Sample("warren_memory_size_bytes", memory.total)
