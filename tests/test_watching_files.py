"""Tests of the files for Prometheus and Grafana: the metrics and labels that they name exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from workers.runtime.metric_table import OF_ROLES, TABLE

FOLDER = Path(__file__).resolve().parents[1] / "docker" / "watching"
METRIC = re.compile(r"\bwarren_\w+")
OF_PROMETHEUS = {"instance", "job"}


def dashboard() -> Any:
    return json.loads((FOLDER / "grafana.json").read_text())


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def shown() -> list[tuple[str, str]]:
    """Return (expression, legend) of each curve of the dashboard, and (expression, summary) of each alert."""
    targets = [target for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    curves = [(target["expr"], target["legendFormat"]) for target in targets]
    return curves + [(rule["expr"], rule["annotations"]["summary"]) for rule in rules()]


def test_every_metric_named_is_one() -> None:
    named = {name for expression, _ in shown() for name in METRIC.findall(expression)}
    assert len(named) > 25 and named <= set(TABLE)


def test_every_label_named_is_one_of_its_metrics() -> None:
    for expression, text in shown():
        metrics = METRIC.findall(expression)
        labels = {label for name in metrics for label in TABLE[name].labels} | OF_PROMETHEUS
        if any(name in OF_ROLES for name in metrics):
            labels.add("process")  # the launcher's
        used = {*re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text), *re.findall(r'(\w+)(?:=~?|!~?)"', expression)}
        assert used <= labels, (expression, used - labels)


def test_alerts_cover_what_needs_a_person() -> None:
    named = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    assert named >= {
        "warren_last_progress_timestamp_seconds", "warren_learner_data_age_seconds", "warren_dead_letters",
        "warren_process_restarts_total", "warren_disk_free_bytes", "warren_memory_available_bytes",
    }  # fmt: skip


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    found = dashboard()
    assert found["uid"] == "warren" and found["schemaVersion"] >= 36 and found["__inputs"][0]["name"] == "DS_PROMETHEUS"
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in ("row", "timeseries") and panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_counters_end_in_total() -> None:
    for name, metric in TABLE.items():
        assert name.endswith("_total") == (metric.kind == "counter"), name
