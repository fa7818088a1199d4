"""A gateway's figures: /health, and /metrics in the format of Prometheus."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from support.game_clients import Http, Tcp

from workers.gateway.metrics import Metrics, text

TICK = json.dumps({"observation": [0, 1, 2]}).encode()


def get(client: Http, path: str) -> tuple[int, str]:
    client.connection.request("GET", path)
    reply = client.connection.getresponse()
    return reply.status, reply.read().decode()


def samples(text: str) -> dict[str, float]:
    """Return values by metric name and label values."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_status_over_http_and_tcp(gateways: Any) -> None:
    gateway = gateways()
    http, tcp = Http(gateway.server.port), Tcp(gateway.server.tcp_port)
    for _ in range(3):
        http.ask(TICK, session="a", step_kind="auto")
    http.ask(TICK, session="none", step_kind="tick")
    tcp.ask(TICK, session="a", step_kind="tick")
    tcp.ask(TICK, session="a", step_kind="jump")
    status, told = get(http, "/metrics")
    found = samples(told)
    assert status == 200
    assert found["warren_gateway_requests_total 200"] == 4
    assert found["warren_gateway_requests_total 404"] == found["warren_gateway_requests_total 400"] == 1
    assert found["warren_gateway_answer_seconds_count"] == found["warren_gateway_answer_seconds_bucket +Inf"] == 6
    assert found["warren_gateway_sessions"] == 1 and found["warren_gateway_info"] == 1


def test_health_says_whether_games_may_come(gateways: Any) -> None:
    gateway = gateways()
    client = Http(gateway.server.port)
    assert get(client, "/health") == (200, '{"ready": true, "draining": false, "hanging": 0}\n')
    gateway.sampler.version = -1  # no weights have come yet
    status, told = get(client, "/health")
    assert status == 503 and json.loads(told)["ready"] is False
    assert client.facts()["sessions"] == 0


def test_facts_of_any_type_become_metrics() -> None:
    metrics = Metrics()
    metrics.answered(200, 0.003)
    facts = {"version": 7, "share": 0.25, "none": None, "run": 'runs/"a"\\b', "backend": "onnx"}
    found = samples(text({"": metrics.snapshot(facts)}).decode())
    assert found["warren_gateway_version"] == 7 and found["warren_gateway_share"] == 0.25
    assert found['warren_gateway_info runs/"a"\\b onnx'] == 1
    assert found["warren_gateway_answer_seconds_bucket 0.0025"] == 0
    assert found["warren_gateway_answer_seconds_bucket 0.005"] == 1


def test_counters_keep_all_digits_and_their_type() -> None:
    facts = {"seconds_in_passes": 1234567.891, "decisions": 123456789012, "sessions": 3}
    told = text({"": Metrics().snapshot(facts)}).decode()
    assert "\nwarren_gateway_seconds_in_passes 1234567.891\n" in told
    assert "\nwarren_gateway_decisions 123456789012\n" in told
    types = {family.name: family.type for family in text_string_to_metric_families(told)}
    assert types["warren_gateway_seconds_in_passes"] == types["warren_gateway_decisions"] == "counter"
    assert types["warren_gateway_sessions"] == "gauge"


def test_metrics_label_each_process_and_name_those_that_are_down() -> None:
    parts = [Metrics(), Metrics()]
    for times, part in enumerate(parts, start=1):
        for _ in range(times):
            part.answered(200, 0.003)
    of = {str(number): part.snapshot({"sessions": number, "backend": "onnx"}) for number, part in enumerate(parts)}
    told = text({**json.loads(json.dumps(of)), "2": None}).decode()
    found = samples(told)
    assert found["warren_gateway_requests_total 0 200"] == 1 and found["warren_gateway_requests_total 1 200"] == 2
    assert found["warren_gateway_answer_seconds_bucket 1 +Inf"] == 2 and found["warren_gateway_sessions 1"] == 1
    assert [found[f"warren_gateway_up {number}"] for number in range(3)] == [1, 1, 0]
    types = {family.name: family.type for family in text_string_to_metric_families(told)}
    assert types["warren_gateway_sessions"] == types["warren_gateway_up"] == "gauge"
    assert types["warren_gateway_answer_seconds"] == "histogram"
