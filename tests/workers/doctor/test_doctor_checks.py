"""The doctor's checks on made-up answers of servers and of the machine."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from rich.console import Console

from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.config.schema import BrokerConfig, Config, Sampling
from workers.doctor import broker_checks, broker_facts, clocks, machine, redis_server
from workers.doctor.broker_facts import ANSWER, BrokerFacts
from workers.doctor.findings import Finding, Level, Rows, as_json, status_of, summary, table
from workers.doctor.management import management_api, of_nodes, with_management
from workers.doctor.rabbitmqctl import command_line, consumer_timeout_of, of_status
from workers.doctor.target import settings

GIB = 1 << 30
HEALTHY = BrokerFacts(
    "RabbitMQ", "4.0.5", True, None, (), "classic", False, (), GIB, 8 * GIB, 50 * GIB, 50_000_000, 30, 1024, (), 1800.0
)
INFO: dict[str, Any] = {
    "redis_version": "7.0.15",
    "used_memory": 1 << 20,
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "total_system_memory": 24 * GIB,
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
}
REDIS = redis_server.RedisFacts(INFO, 0.01)
MACHINE = machine.MachineFacts(Path("runs/x"), 50 * GIB, GIB, 4096, 4.0, 16 * GIB)


def of_broker(*, calls: bool = True, **differing: Any) -> dict[str, Finding]:
    facts = replace(HEALTHY, **differing)
    found = [*broker_checks.judge(facts, Topology("x"), calls=calls), *broker_checks.judge_managed(facts)]
    return {one.check: one for one in found}


def of_redis(league: bool = True, private: bool = False, skew: float = 0.0, **differing: Any) -> dict[str, Finding]:
    facts = replace(REDIS, info={**INFO, **differing}, skew=skew)
    return {one.check: one for one in redis_server.judge(facts, league=league, private=private)}


def of_machine(processes: int = 3, **differing: Any) -> dict[str, Finding]:
    return {one.check: one for one in machine.judge(replace(MACHINE, **differing), processes)}


def test_healthy_servers_and_a_large_machine_pass_all_checks() -> None:
    for found in (of_broker(), of_redis(), of_machine()):
        assert {one.level for one in found.values()} == {Level.ok}


@pytest.mark.parametrize(
    ("differing", "check", "level", "says"),
    [
        ({"version": "3.8.2"}, "broker version", Level.error, "too old"),
        ({"product": "LavinMQ"}, "broker version", Level.warning, "not RabbitMQ"),
        ({"blocked": "low on memory"}, "publishing", Level.error, "low on memory"),
        ({"confirms": False}, "publishing", Level.error, "not confirmed"),
        ({"refused": ("declare queues and exchanges",)}, "permissions", Level.error, "may not declare"),
        ({"refused": (ANSWER,)}, "permissions", Level.error, "may not publish to the default exchange"),
        ({"denies_transient_queues": True}, "transient queues", Level.warning, "denied"),
        ({"alarms": ("disk on rabbit@a",)}, "alarms", Level.error, "disk on rabbit@a"),
        ({"memory_used": 8 * GIB}, "broker's memory", Level.warning, "8.0 GiB of 8.0 GiB"),
        ({"disk_free": 60_000_000}, "broker's disk", Level.warning, "57 MiB free"),
        ({"handles_used": 1000}, "broker's file handles", Level.warning, "1,000 of 1,024"),
        ({"consumer_timeout": 60.0}, "consumer timeout", Level.warning, "60 s"),
        ({"deprecated_in_use": ("global_qos",)}, "deprecated features", Level.warning, "global_qos"),
    ],
    ids=str,
)
def test_problems_of_a_broker_are_named_with_a_remedy(
    differing: dict[str, Any], check: str, level: Level, says: str
) -> None:
    one = of_broker(**differing)[check]
    assert (one.level, bool(one.remedy)) == (level, True)
    assert says in one.found


def test_a_run_without_services_needs_no_default_exchange() -> None:
    assert of_broker(calls=False, refused=(ANSWER,))["permissions"].level is Level.warning


def test_a_default_queue_type_of_quorum_is_no_problem() -> None:
    """Every queue of a run names its own type."""
    assert of_broker(default_queue_type="quorum")["default queue type"].level is Level.ok


def test_rabbitmq_4_3_has_no_consumer_timeout_for_classic_queues() -> None:
    assert of_broker(version="4.3.0", consumer_timeout=60.0)["consumer timeout"].level is Level.ok
    quorum = of_broker(version="4.3.0", consumer_timeout=60.0, default_queue_type="quorum")
    assert quorum["consumer timeout"].level is Level.warning


def test_unknown_facts_are_reported_as_not_seen() -> None:
    facts = BrokerFacts("RabbitMQ", "3.13.1", True, default_queue_type="classic", unseen={"management": "needs X"})
    found = {one.check: one for one in broker_checks.judge_managed(facts)}
    assert {one.level for one in found.values()} == {Level.unseen}
    assert found["alarms"].remedy == "needs X"
    assert "rabbitmqctl" in found["consumer timeout"].remedy


@pytest.mark.parametrize(
    ("differing", "check", "level", "says"),
    [
        ({"redis_version": "5.0.7"}, "Redis version", Level.error, "too old"),
        ({"maxmemory": GIB, "used_memory": GIB}, "Redis memory", Level.warning, "maxmemory 1.0 GiB"),
        ({"maxmemory": GIB, "maxmemory_policy": "allkeys-lru"}, "maxmemory-policy", Level.error, "the league itself"),
        ({"maxmemory": GIB, "maxmemory_policy": "volatile-ttl"}, "maxmemory-policy", Level.error, "leases"),
        ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy", Level.warning, "without effect"),
        ({"aof_enabled": 0}, "appendonly", Level.warning, "loses the league"),
        ({"aof_last_write_status": "err"}, "appendonly", Level.error, "failed"),
        ({"skew": 5.0}, "clock", Level.warning, "5.0 s ahead"),
        ({"skew": -60.0}, "clock", Level.error, "60.0 s behind"),
    ],
    ids=str,
)
def test_problems_of_redis_are_named_with_a_remedy(
    differing: dict[str, Any], check: str, level: Level, says: str
) -> None:
    one = of_redis(**differing)[check]
    assert (one.level, bool(one.remedy)) == (level, True)
    assert says in one.found


def test_a_private_redis_needs_no_append_only_file() -> None:
    assert of_redis(private=True, aof_enabled=0)["appendonly"].level is Level.ok


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        ("READONLY You can't write", "master"),
        ("MISCONF Redis is configured", "disk"),
        ("NOPERM no", "ACL"),
        ("X", "log"),
    ],
)
def test_a_redis_that_refuses_writes_is_an_error(answer: str, remedy: str) -> None:
    found = list(redis_server.judge(replace(REDIS, refused=answer), league=False, private=True))
    one = next(one for one in found if one.check == "Redis writes")
    assert one.level is Level.error
    assert remedy in one.remedy


@pytest.mark.parametrize(
    ("differing", "check", "level"),
    [
        ({"disk_free": 1 << 20}, "run folder", Level.error),
        ({"disk_free": GIB}, "run folder", Level.warning),
        ({"shared": 16 << 20}, "shared memory", Level.warning),
        ({"shared": None}, "shared memory", Level.unseen),
        ({"handles": 64}, "file handles", Level.error),
        ({"handles": 512}, "file handles", Level.warning),
        ({"threads": 40}, "threads", Level.warning),
        ({"threads": 48}, "threads", Level.ok),
        ({"processes": 40}, "cores", Level.warning),
        ({"memory": GIB, "processes": 8}, "memory", Level.warning),
    ],
    ids=str,
)
def test_a_machine_that_is_short_of_something_is_named(differing: dict[str, Any], check: str, level: Level) -> None:
    assert of_machine(**differing)[check].level is level


def test_the_quota_of_a_container_counts_as_cores(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("50000 100000\n")
    assert machine.cores(quota) == 0.5
    quota.write_text("max 100000\n")
    assert machine.cores(quota) == machine.cores(tmp_path / "none")


def test_threads_are_limited_by_the_container_and_by_the_users_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.os, "geteuid", lambda: 12345)
    monkeypatch.setattr(
        machine.psutil, "process_iter", lambda names: [theirs(12345, 30), theirs(0, 500), theirs(None, 1)]
    )
    monkeypatch.setattr(machine.resource, "getrlimit", lambda which: (machine.resource.RLIM_INFINITY,) * 2)
    assert machine.threads(tmp_path) is None
    (tmp_path / "pids.current").write_text("90\n")
    (tmp_path / "pids.max").write_text("max\n")
    assert machine.threads(tmp_path) is None
    (tmp_path / "pids.max").write_text("100\n")
    assert machine.threads(tmp_path) == 10
    monkeypatch.setattr(machine.resource, "getrlimit", lambda which: (35, 35))
    assert machine.threads(tmp_path) == 5
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)  # whom the limit does not bind
    assert machine.threads(tmp_path) == 10


def theirs(user: int | None, threads: int) -> SimpleNamespace:
    uids = None if user is None else SimpleNamespace(real=user)
    return SimpleNamespace(info={"uids": uids, "num_threads": threads})


def test_a_league_has_a_learner_per_player() -> None:
    assert machine.processes_of(Config(actors=3)) == 4
    assert machine.processes_of(Config(actors=2, league={"players": {"a": {}, "b": {}}})) == 6
    served = Config(actors=2, sampling=Sampling.served, league={"players": {"a": {}, "b": {}}})
    assert machine.processes_of(served) == 8


def test_only_processes_that_this_hosts_launcher_starts_count() -> None:
    several = {"players": {"a": {"learners": 3}, "b": {}}}
    assert machine.processes_of(Config(learners=2, actors=1)) == 3
    assert machine.processes_of(Config(learners=2, actors=1, flower_port=5555)) == 4
    assert machine.processes_of(Config(learners=2, actors=1, league=several)) == 1 + 3 + 2 + 2
    shared = Config(hosts={"master": {"actors": 2}, "box-2": {"actors": 5}}, broker=BrokerConfig("external"))
    assert [machine.processes_of(replace(shared, host=host)) for host in (None, "master", "box-2")] == [3, 3, 5]
    assert machine.processes_of(replace(shared, hosts={"master": 3})) == 3, "another check reports wrong hosts"


def test_hosts_whose_clocks_are_apart_are_named() -> None:
    assert clocks.judge({}).level is Level.unseen
    assert clocks.judge({"a": 0.1, "b": 0.2}).level is Level.ok
    one = clocks.judge({"a": 0.1, "b": -8.0, "c": 0.0})
    assert (one.level, one.found) == (Level.warning, "b is 8.1 s ahead of a")
    assert clocks.judge({"a": 0.0, "b": 90.0}).level is Level.error


def test_rabbitmqctl_of_old_and_new_versions_is_understood() -> None:
    old = {
        "alarms": [{"node": "n", "resource": "memory", "type": "resource_limit"}],
        "memory": {"strategy": "rss", "total": {"rss": 5, "erlang": 3}},
        "vm_memory_high_watermark_limit": 10, "disk_free": 7, "disk_free_limit": 6,
        "file_descriptors": {"total_used": 2, "total_limit": 9},
    }  # fmt: skip
    facts = of_status(BrokerFacts(), old)
    assert (facts.alarms, facts.memory_used, facts.memory_limit) == (("memory",), 5, 10)
    assert (facts.disk_free, facts.disk_limit, facts.handles_used, facts.handles) == (7, 6, 2, 9)
    bare = of_status(BrokerFacts(), {"alarms": [], "memory": {"total": 4}, "disk_free": "NaN"})
    assert (bare.alarms, bare.memory_used, bare.disk_free, bare.handles) == ((), 4, None, None)
    assert consumer_timeout_of("{ok,1800000}\n") == 1800.0
    assert consumer_timeout_of("{ok,undefined}") == consumer_timeout_of("undefined\n") == float("inf")
    assert consumer_timeout_of("Error: no") is None


def test_the_worst_node_of_a_cluster_counts() -> None:
    node = {"mem_used": 1, "mem_limit": 10, "disk_free": 90, "disk_free_limit": 5, "fd_used": 1, "fd_total": 10}
    worse = {**node, "name": "b", "mem_used": 9, "mem_alarm": True, "disk_free": 8}
    facts = of_nodes(BrokerFacts(), [{**node, "name": "a"}, worse, {"name": "c", "running": False}])
    assert (facts.alarms, facts.memory_used, facts.disk_free) == (("memory on b",), 9, 8)


def test_warnings_allow_a_run_and_errors_do_not() -> None:
    fine, warned = Finding("a", Level.ok, "fine"), Finding("b", Level.warning, "may [bite]", "mend it")
    wrong, unseen = Finding("c", Level.error, "broken", "mend it"), Finding("d", Level.unseen, "", "needs X")
    assert status_of([fine, warned, unseen]) == 0
    assert status_of([fine, wrong]) == 2
    assert summary([fine, warned, wrong, unseen]).startswith("a run would not work: 1 errors, 1 warnings, 1 not seen")
    told = json.loads(as_json([fine, wrong]))
    assert (told["works"], told["findings"][1]["level"]) == (False, "error")
    with (console := Console(width=80)).capture() as shown:
        console.print(table([warned]))
    assert "may [bite]" in shown.get()


@pytest.mark.parametrize("width", [80, 200])
def test_rows_that_are_printed_one_by_one_are_the_same_table(width: int) -> None:
    long = (
        "a text that takes more than one line of its column at a width of eighty characters, [brackets], and "
        + 60 * "x"
    )
    findings = [Finding("a", Level.ok, "fine"), Finding("broker's file handles", Level.warning, long, long)]
    findings.append(Finding("c", Level.unseen, "", "needs X"))
    with (console := Console(width=width, force_terminal=False)).capture() as whole:
        console.print(table(findings))
    rows, printed = Rows(console), ""
    for one in findings:
        with console.capture() as shown:
            rows.add(one)
        assert one.check[:6] in shown.get()
        printed += shown.get()
    with console.capture() as shown:
        rows.end()
    assert printed + shown.get() == whole.get()
    assert "…" not in printed, "long words are folded"


def test_a_running_run_needs_no_writable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    overrides = [f"folder={tmp_path}/file", "league.games=64", "experiment=rps"]
    config, found = settings(overrides, None, "night")
    assert (config.run, config.league is not None, [one.level for one in found]) == ("night", True, [Level.ok])
    _, found = settings([*overrides, "actors=0"], None, None)
    assert [one.level for one in found] == [Level.error, Level.error]
    assert "is a file" in "".join(one.found for one in found)
    assert "actors: 0 is too small" in "".join(one.found for one in found)


def test_a_block_that_follows_a_confirm_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ's channel may confirm the message that gets its connection blocked before that one says so."""

    class Blocking:
        server_properties: ClassVar = {"product": "RabbitMQ", "version": "3.10.8"}

        def __init__(self, on_blocked: Callable[[str], None]) -> None:
            self.events: dict[str, set[Callable[..., None]]] = {"basic_ack": set()}
            self.coming: list[Callable[[], None]] = []
            self.on_blocked, self.published, self.collected = on_blocked, 0, False

        def channel(self) -> Blocking:
            return self

        def confirm_select(self) -> None: ...

        def basic_publish(self, *_: Any, **__: Any) -> None:
            self.published += 1
            if self.published == 1:
                self.coming += [*(partial(told, 1, False) for told in self.events["basic_ack"])]
                self.coming.append(partial(self.on_blocked, "low on memory"))

        def drain_events(self, timeout: float) -> None:
            if not self.coming:
                raise TimeoutError
            self.coming.pop(0)()

        def collect(self) -> None:
            self.collected = True

        close = collect

    made: list[Blocking] = []
    monkeypatch.setattr(broker_facts, "answering", lambda url: url)
    monkeypatch.setattr(broker_facts, "_connect", lambda _, on_blocked: made.append(Blocking(on_blocked)) or made[0])
    facts = broker_facts.over_amqp("amqp://", Topology("run"))
    assert facts.blocked == "low on memory" and made[0].collected


@pytest.mark.parametrize("answer", [b"AMQP\x00\x00\x09\x01", b"\r\n"])
def test_a_management_url_of_another_kind_of_server_is_named(answer: bytes) -> None:
    class Other(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            found = with_management(BrokerFacts("RabbitMQ", "3.13.1", True), "amqp://localhost", url)
        finally:
            server.shutdown()
    assert found.unseen["management"] == f"needs the management plugin (nothing answers at {url})"


def test_a_management_url_with_a_wrong_port_raises_what_a_server_away_does() -> None:
    with pytest.raises(OSError, match="nonnumeric port: 'abc'"):
        management_api("amqp://localhost", "http://127.0.0.1:abc")("nodes")


def test_a_rabbitmqctl_that_no_shell_could_read_is_one_error() -> None:
    with pytest.raises(ConfigurationError, match=r"--rabbitmqctl: .*'exec.* is no command .* close its quotation"):
        command_line("docker 'exec")
