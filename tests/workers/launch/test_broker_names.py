"""Tests of runs that Redis has forgotten: they are found on the broker, or a message says that they cannot be."""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import brokers

from tasks.app import create_app
from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.doctor.broker_facts import BrokerFacts
from workers.doctor.management import with_management
from workers.launch.traces import runs
from workers.launch.traces.broker_names import Names, list_names
from workers.servers import Servers

BOTH = {
    "queues": ["warren.one.learner.main", "celery", "warren.two-b.dead.actor"],
    "exchanges": ["", "amq.direct", "warren.one.event.mine", "warren."],
}
FOUND = {
    "one": Names(["warren.one.learner.main"], ["warren.one.event.mine"]),
    "two-b": Names(["warren.two-b.dead.actor"], []),
}


def control(arguments: Any) -> subprocess.CompletedProcess[str]:
    kind = arguments[1].removeprefix("list_")
    assert arguments[arguments.index("-p") + 1] == "my host"
    return subprocess.CompletedProcess(arguments, 0, json.dumps([{"name": name} for name in BOTH[kind]]), "")


def test_rabbitmqctl_tells_the_runs_by_their_names() -> None:
    assert list_names("amqp://a:b@box/my%20host", control).runs == FOUND


@pytest.fixture
def management() -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a management API, and the paths that it is asked for."""
    asked: list[str] = []

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path.startswith("/moved/"):
                self.send_response(302)
                self.send_header("Location", self.path.removeprefix("/moved"))
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            names = BOTH["queues" if "queues" in self.path else "exchanges"]
            self.wfile.write(json.dumps([{"name": name} for name in names]).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_a_named_management_api_lists_runs(management: tuple[str, list[str]], scheme: str) -> None:
    url, asked = management
    found = list_names(f"{scheme}://a:b@127.0.0.1:5672/my%20host", management_url=url)
    assert (found.runs, found.unseen) == (FOUND, "")
    assert asked == ["/api/queues/my%20host", "/api/exchanges/my%20host"]


def test_no_password_is_sent_unless_a_management_api_is_named(
    management: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = management
    monkeypatch.setattr("workers.doctor.management.MANAGEMENT_PORT", int(url.rpartition(":")[2]))
    assert list_names("amqp://a:b@127.0.0.1:5672/").unseen == "AMQP lists nothing"
    assert asked == []


def test_doctor_sends_the_password_of_a_tls_broker_nowhere_by_default(
    management: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = management
    monkeypatch.setattr("workers.doctor.management.MANAGEMENT_PORT", int(url.rpartition(":")[2]))
    facts = with_management(BrokerFacts(), "amqps://a:b@127.0.0.1:5671/")
    assert "--management-url https://" in facts.unseen["management"]
    assert asked == []


def test_management_api_is_asked_without_proxies(
    management: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = management
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert list_names("amqp://a:b@127.0.0.1:5672/my%20host", management_url=url).runs == FOUND
    assert len(asked) == 2


def test_password_does_not_follow_a_redirection(management: tuple[str, list[str]]) -> None:
    url, asked = management
    found = list_names("amqp://a:b@127.0.0.1:5672/my%20host", management_url=f"{url}/moved")
    assert "302" in found.unseen
    assert asked == ["/moved/api/queues/my%20host"]


def test_a_message_says_why_runs_cannot_be_listed_when_nothing_answers() -> None:
    def absent(arguments: Any) -> Any:
        raise FileNotFoundError("no such program: rabbitmqctl")

    found = list_names("amqp://a:b@127.0.0.1/", absent, "http://127.0.0.1:1")
    assert found.runs == {}
    assert "no such program" in found.unseen and "management API at http://127.0.0.1:1" in found.unseen
    assert "--rabbitmqctl COMMAND" in runs.explain_unlisted(found.unseen)


def test_a_redis_broker_lists_no_names() -> None:
    assert list_names("redis://127.0.0.1:1/0", control).runs == {}


def test_a_run_left_only_on_rabbitmq_is_listed_and_purged(
    servers: Servers, run_name: str, rabbitmqctl: Callable[..., list[str]]
) -> None:
    topology = Topology(run_name)
    app = create_app(topology, servers.broker_url, servers.redis_url)
    with app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
        topology.event("an event of my own")(channel).declare()  # nothing but Redis knew of it
    node = brokers.node(servers)

    def ask(arguments: Any) -> Any:
        if node is None:
            lines = brokers.control(servers, *arguments[1:])
            return subprocess.CompletedProcess(arguments, 0, "\n".join(lines), "")
        return node.control(list(arguments), capture_output=True, text=True, timeout=280)

    place = runs.Servers(servers.broker_url, servers.redis_url, control=ask)
    found = runs.find(run_name, [place])
    assert (found.leader, found.keys) == (None, 0)
    assert f"{len(topology.declared())} queues and {len(found.names.exchanges)} exchanges" in found.describe()
    assert topology.event("an event of my own").name in found.names.exchanges
    assert "removed" in runs.purge(found)
    for kind in ("list_queues", "list_exchanges"):
        assert [name for name in rabbitmqctl(kind, "name") if name.startswith(f"{topology.prefix}.")] == []


def test_a_run_that_is_not_found_may_exist_if_the_broker_lists_nothing(
    embedded: Servers,
) -> None:
    place = runs.Servers("amqp://127.0.0.1:1/", embedded.redis_url)
    with pytest.raises(ConfigurationError, match="runs whose Redis keys are gone cannot be listed"):
        runs.find("no-such-run", [place])


def test_the_command_line_names_rabbitmqctl(tmp_path: Path, embedded: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "check_broker", lambda url: None)
    given = argparse.Namespace(
        broker_url="amqp://a:b@127.0.0.1:1/my%20host", redis_url=embedded.redis_url,
        management_url=None, rabbitmqctl="printf '[{\"name\": \"warren.left.learner.main\"}]'",
    )  # fmt: skip
    (place,) = runs.places(given, tmp_path)
    assert [one.run for one in runs.list_runs(place).runs if one.names.queues] == ["left"]
