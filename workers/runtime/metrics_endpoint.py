"""An HTTP endpoint for Prometheus. Its figures are read only when it is asked, and cost nothing otherwise.

    with served(config, roles.ACTOR.name, "actor-0", actor.samples):
        ...

Without the setting metrics.port nothing listens and prometheus_client is not imported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

import warren
from warren.errors import ConfigurationError
from warren.files import write_whole
from workers.config.watching import MetricsConfig
from workers.runtime.metric_table import TABLE

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from workers.config.schema import Config

logger = logging.getLogger(__name__)

FOLDER = "WARREN_METRICS_FOLDER"  # variable of a launcher's processes: folder where each writes its endpoint's port
COUNTS = {"calls": "calls", "failed": "failures", "batches": "batches", "dropped": "dropped", "refused": "refused"}


class Sample(NamedTuple):
    """A value of a metric of the table."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


Source = Callable[[], Iterable[Sample]]


def families(samples: Iterable[Sample]) -> Iterator[Metric]:
    """Yield Prometheus's families of these samples, each with all of its samples. Raises KeyError for unknown names."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found: dict[str, Metric] = {}
    for sample in samples:
        row = TABLE[sample.name]
        if sample.name not in found:
            kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
            found[sample.name] = kind(sample.name, row.meaning)
        found[sample.name].add_sample(sample.name, dict(sample.labels), sample.value)
    yield from found.values()


class Endpoint:
    """An HTTP server for the metrics that `collect` yields; `port` 0: any free one.

    Raises ConfigurationError for a taken port.
    """

    def __init__(self, collect: Callable[[], Iterable[Metric]], address: str, port: int) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(collect))
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            raise ConfigurationError(
                f"metrics.port: {address}:{port} cannot be listened on ({error.strerror or error}); choose another "
                "metrics.port or metrics.address, or 0 for any free port"
            ) from None
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector:
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return ()


@contextmanager
def served(config: Config, role: str, name: str, source: Source, app: Any = None) -> Iterator[None]:
    """Serve the metrics of this process while the block runs, if the setting metrics.port is not null.

    A process of a launcher takes any free port and tells the launcher. `app`: the Celery app, for its services' counts.
    """
    if config.metrics.port is None:
        yield
        return
    labels = {"run": config.run or "", "role": role, "player": config.player}
    with _listening(config.metrics, labels, name, source, app):
        yield


@contextmanager
def served_to_launcher(run: str, role: str, name: str, app: Any = None) -> Iterator[None]:
    """Serve the system's and the services' figures of this process, if a launcher with an endpoint started it."""
    if not os.environ.get(FOLDER):
        yield
        return
    with _listening(MetricsConfig(), {"run": run, "role": role, "player": ""}, name, tuple, app):
        yield


@contextmanager
def _listening(metrics: MetricsConfig, of: Mapping[str, str], name: str, source: Source, app: Any) -> Iterator[None]:
    folder, labels = os.environ.get(FOLDER), {**of, "release": warren.__version__}

    def collect() -> Iterator[Metric]:
        own = [Sample("warren_info", 1, labels), *of_process(), *of_services(app), *source()]
        return families(own)

    place = ("127.0.0.1", 0) if folder else (metrics.address, metrics.port or 0)
    endpoint = Endpoint(collect, *place)
    try:
        if folder:
            _tell(Path(folder), name, endpoint.port)
        else:
            logger.info("metrics for Prometheus: http://%s:%d/metrics", metrics.address, endpoint.port)
        yield
    finally:
        endpoint.close()


def _tell(folder: Path, name: str, port: int) -> None:
    try:
        write_whole(folder / name, str(port))
    except OSError as error:  # the launcher's metrics lack this process, which works all the same
        logger.warning("the launcher was not told of this process's metrics: %s", error)


def of_process() -> Iterator[Sample]:
    """Yield the system's figures of this process."""
    process = psutil.Process()
    with process.oneshot():
        times = process.cpu_times()
        yield Sample("warren_resident_memory_bytes", process.memory_info().rss)
        yield Sample("warren_cpu_seconds_total", times.user + times.system)
        yield Sample("warren_open_files", process.num_fds())
        yield Sample("warren_started_timestamp_seconds", process.create_time())


def of_services(app: Any) -> Iterator[Sample]:
    """Yield the counts of the services that this process serves, if any."""
    receiver = getattr(app, "warren_receiver", None)
    if receiver is None:
        return
    status = receiver.status()
    yield Sample("warren_service_busy_ratio", status["busy"])
    for service, counts in status["services"].items():
        for count, name in COUNTS.items():
            yield Sample(f"warren_service_{name}_total", counts.get(count, 0), {"service": service})
        yield Sample("warren_service_waiting", counts["waiting"], {"service": service})


def of_stages(shares: Mapping[str, Mapping[str, float]]) -> Iterator[Sample]:
    """Yield the time of each stage, from Timing.shares."""
    for stage, row in shares.items():
        yield Sample("warren_stage_seconds_total", row["seconds"], {"stage": stage})


def of_learner(player: str, figures: Mapping[str, Any], losses: Mapping[str, float], trouble: str) -> Iterator[Sample]:
    """Yield a learner's figures, from Progress.figures."""
    labels = {"player": player}
    for name in ("steps", "updates", "episodes", "stale_steps", "refused"):
        yield Sample(f"warren_learner_{name}_total", figures[name], labels)
    yield Sample("warren_learner_steps_per_second", figures["steps_per_second"], labels)
    if figures["mean_return"] is not None:
        yield Sample("warren_learner_mean_return", figures["mean_return"], labels)
    yield Sample("warren_learner_data_age_seconds", figures["data_age"], labels)
    yield Sample("warren_learner_staleness_versions", figures["staleness"], labels)
    yield Sample("warren_weights_version", figures["version"], labels)
    yield Sample("warren_learner_trouble", int(bool(trouble)), labels)
    for term, value in losses.items():
        yield Sample("warren_learner_loss", value, {**labels, "term": term})
