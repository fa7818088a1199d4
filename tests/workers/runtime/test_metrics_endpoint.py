"""Tests of metrics for Prometheus: they are those of the table, and nothing listens unless it is asked for."""

from __future__ import annotations

import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.waiting import PATIENCE, until

from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.config import plain_checks
from workers.config.schema import BrokerConfig, Config
from workers.config.watching import MetricsConfig, problems
from workers.launch.health_check import HealthCheck
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import ProcessSpec
from workers.launch.watching import host_metrics
from workers.launch.watching.host_metrics import HostMetrics
from workers.learning.metrics import Progress
from workers.runtime import metrics_endpoint
from workers.runtime.metric_table import OF_ROLES, TABLE
from workers.runtime.metrics_endpoint import (
    FOLDER,
    Endpoint,
    Sample,
    families,
    of_learner,
    of_stages,
    served,
    served_to_launcher,
)

STATUS = {"busy": 0.5, "services": {"league.request": {"calls": 7, "failed": 1, "waiting": 2}}}
APP: Any = SimpleNamespace(warren_receiver=SimpleNamespace(status=lambda: STATUS))


def own() -> list[Sample]:
    figures = {**Progress(steps=100, version=3).figures(), "mean_return": 1.5}
    return [*of_learner("main", figures, {"entropy": 0.7}, "could not write"), *of_stages({"update": {"seconds": 2.0}})]


def read(url: str) -> dict[str, dict[str, float]]:
    """Return metric -> labels as text -> value."""
    found: dict[str, dict[str, float]] = {}
    with urllib.request.urlopen(url, timeout=30) as reply:
        for family in text_string_to_metric_families(reply.read().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, {})[" ".join(sample.labels.values())] = sample.value
    return found


def config(port: int | None) -> Config:
    return Config(run="some-run", metrics=MetricsConfig(port=port))


def test_nothing_listens_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "Endpoint", pytest.fail)
    with served(config(None), "actor", "actor-0", own):
        pass


def test_a_role_gives_all_metrics_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))  # a launcher's process: on any free port
    with served(config(9400), "learner", "learner", own, APP):
        found = read(f"http://127.0.0.1:{(tmp_path / 'learner').read_text()}/metrics")
    assert set(found) == set(OF_ROLES)
    assert found["warren_learner_steps_total"] == {"main": 100} and found["warren_learner_mean_return"] == {"main": 1.5}
    assert found["warren_service_failures_total"] == {"league.request": 1} and found["warren_learner_trouble"] == {
        "main": 1
    }
    assert 1e6 < found["warren_resident_memory_bytes"][""] < 1e11


def test_a_services_metrics_are_for_its_launcher_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    with served_to_launcher("mine", "service", "Actor-0", APP):
        assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with served_to_launcher("mine", "service", "Actor-0", APP):
        found = read(f"http://127.0.0.1:{(tmp_path / 'Actor-0').read_text()}/metrics")
    assert found["warren_service_failures_total"] == {"league.request": 1} and "warren_open_files" in found


def test_a_launcher_gives_its_own_metrics_and_those_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANSWERS_WITHIN", "COUNTED_WITHIN"):
        monkeypatch.setattr(host_metrics, name, PATIENCE)
    (tmp_path / "logs").mkdir()
    app: Any = SimpleNamespace(warren_broker=None)
    metrics = HostMetrics(tmp_path, app, Topology("some-run"))
    metrics._count_dead = lambda: 4  # type: ignore[method-assign]
    watch: Any = SimpleNamespace(away_for=lambda: {"Redis": 0.0}, depths={"learner.main": 3})
    health: Any = HealthCheck.__new__(HealthCheck)
    health.steps, health.excused = {"": 5}, {}
    supervisor = Supervisor(tmp_path, {}, 0, pytest.fail)
    spec = ProcessSpec("actor", range(2), ("-c", "import time; time.sleep(600)"))
    actor = Endpoint(lambda: families([Sample("warren_resident_memory_bytes", 7)]), "127.0.0.1", 0)
    (Path(metrics.environment[FOLDER]) / "actor-0").write_text(str(actor.port))
    try:
        for rank in spec.ranks:
            supervisor.start(spec, rank)
        until(lambda: supervisor.alive() == 2)
        url = metrics.start("127.0.0.1", 0, supervisor, watch, health)
        found = read(url)
        first = found["warren_last_progress_timestamp_seconds"]["main"]
        assert read(url)["warren_last_progress_timestamp_seconds"]["main"] == first
        health.excused = {"": "paused"}
        assert read(url)["warren_last_progress_timestamp_seconds"]["main"] > first
    finally:
        metrics.stop()
        actor.close()
        supervisor.stop()
    assert set(found) == set(TABLE) - set(OF_ROLES) | {"warren_resident_memory_bytes"}
    assert found["warren_resident_memory_bytes"] == {"actor-0": 7} and found["warren_dead_letters"] == {"": 4}
    assert found["warren_process_answers"] == {"actor-0": 1, "actor-1": 0}
    assert found["warren_process_up"] == {"actor-0 actor": 1, "actor-1 actor": 1}
    assert found["warren_queue_messages"] == {"learner.main": 3}
    assert not Path(metrics.environment[FOLDER]).exists()


def test_a_launcher_that_ends_answers_the_question_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_metrics, "COUNTED_WITHIN", PATIENCE)
    asked, stopped = threading.Event(), threading.Event()
    metrics = HostMetrics(tmp_path, SimpleNamespace(), Topology("some-run"))

    def count() -> None:
        asked.set()
        assert stopped.wait(60.0)

    metrics._count_dead = count  # type: ignore[method-assign]
    spec = ProcessSpec("actor", range(1), ())
    actor = SimpleNamespace(name="actor-0", spec=spec, alive=True, restarts=0, given_up="")
    parts: list[Any] = [
        SimpleNamespace(children=[actor]),
        SimpleNamespace(away_for=dict, depths={}),
        SimpleNamespace(steps={}, excused={}),
    ]
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(read, metrics.start("127.0.0.1", 0, *parts))
        try:
            assert asked.wait(60.0)
            metrics.stop()
        finally:
            stopped.set()
        assert told.result(60.0) == {}


def test_a_metric_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(KeyError, match="warren_made_up"):
        list(families([Sample("warren_made_up", 1)]))


def test_a_taken_port_is_one_clear_error() -> None:
    taken = Endpoint(lambda: [], "127.0.0.1", 0)
    try:
        with pytest.raises(ConfigurationError, match=rf"metrics.port: 127.0.0.1:{taken.port} cannot be listened on"):
            Endpoint(lambda: [], "127.0.0.1", taken.port)
    finally:
        taken.close()


def test_wrong_values_are_named() -> None:
    assert [*problems(MetricsConfig(port=9400), "json")] == []
    port, log_format = problems(MetricsConfig(port=70_000), "xml")
    assert (
        port.startswith("metrics.port: 70000 is not a port")
        and log_format == "log_format: 'xml' is not one of text, json"
    )


@pytest.mark.parametrize("port", [-5, 70_000])
def test_an_invalid_port_is_reported_once(port: int) -> None:
    config = Config(metrics=MetricsConfig(port=port), broker=BrokerConfig(mode="embedded"))
    (told,) = [one for one in plain_checks.problems(config, "train") if one.startswith("metrics.port")]
    assert told.endswith("from 1 to 65535, 0 for any that is free, or null")
