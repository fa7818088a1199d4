"""Tests of the table of roles: files with an entry per role agree with it, and code made from it follows it."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import kustomize
from test_compose import COMPOSE, DOCKER, ROLES_FILE, ROOT, read, seconds

from tasks import topology
from workers.config import applicable, hosts, plain_checks, roles
from workers.config.command_line import run_of_table
from workers.config.roles import Keeps, Restart, Role
from workers.config.schema import BrokerConfig, Config
from workers.doctor import machine
from workers.launch.kinds.training_spec import compiled

Table = Sequence[Role]
Complaints = Iterator[str]
HOLDERS: list[Callable[[Table], Complaints]] = []
MADE_UP = Role(
    "watcher",
    "run=NAME: watches.",
    {"plain": "workers.watching.role", "league": "workers.watching.role"},
    count="watchers",
    id="watcher_id",
    keeps=Keeps.each,
    queue="watcher.main",
    metrics="/watched",
    device="watcher_device",
)


def holder(check: Callable[[Table], Complaints]) -> Callable[[Table], Complaints]:
    HOLDERS.append(check)
    return check


def differ(what: str, there: Any, table: Any) -> Complaints:
    if there != table:
        yield f"{what}: {there}, and by the table {table}"


def names(table: Table) -> set[str]:
    return {role.name for role in table}


@holder
def the_schema(table: Table) -> Complaints:
    fields = {field.name for field in dataclasses.fields(Config)}
    for role in table:
        for setting in (role.count, role.id, role.device, role.switch):
            if setting is not None and setting not in fields:
                yield f"{role.name}: there is no setting {setting}"
    yield from differ("ids", {name for name in fields if name.endswith("_id")}, {one.id for one in table if one.id})
    devices = {name for name in fields if name.split("_")[-1] == "device"}
    for role in table:
        if role.module(Config()) is None and role.count is not None and role.switch is None:
            refused = [*applicable.problems(Config(), "train", [f"{role.count}=2"])]
            yield from differ(f"{role.count} is refused without {role.name}", bool(refused), role.count != "actors")
    yield from differ("devices", devices, {one.device for one in table if one.device})


@holder
def the_modules(table: Table) -> Complaints:
    for role in table:
        for module in (f"workers.{role.name}", *role.work.values()):
            try:
                found = importlib.util.find_spec(module)
            except ModuleNotFoundError:
                found = None
            source = "" if found is None else Path(str(found.origin)).read_text()
            if not source or (module in role.work.values() and "\ndef run(" not in source):
                yield f"{role.name}: {module} has no function run"
    entries = [*(ROOT / "workers").glob("*.py"), *(ROOT / "workers").glob("*/__main__.py")]
    started = {match[1] for path in entries if (match := re.search(r"\brole\(\"(\w+)\"", path.read_text()))}
    yield from differ("entries", started - {"train"}, names(table))


@holder
def the_paths_of_metrics(table: Table) -> Complaints:
    answering = {
        path.parent.name for path in (ROOT / "workers").rglob("*.py") if 'path == "/metrics"' in path.read_text()
    }
    told = {module.split(".")[1] for role in table if role.metrics == "/metrics" for module in role.work.values()}
    yield from differ("packages that serve metrics", answering, told)
    yield from (
        f"{role.name}: {role.metrics} is not served" for role in table if role.metrics not in (None, "/metrics")
    )


@holder
def the_queues(table: Table) -> Complaints:
    of = topology.Topology("a-run", players=("one",))
    known = {of.learner_queue("one").routing_key, of.actor_queue().routing_key}
    found = {role.queue.format(player="one", policy="main") for role in table if role.queue}
    yield from differ("queues", known, found)
    yield from differ("roles of tasks", set(topology.ROLES), {queue.partition(".")[0] for queue in found})


@holder
def compose(table: Table) -> Complaints:
    services = read(ROLES_FILE, {})
    yield from differ(ROLES_FILE.name, set(services), names(table))
    for role in table:
        if (service := services.get(role.name)) is not None:
            entry = service["entrypoint"][:3]
            yield from differ(f"{role.name}'s entry", entry, ["python", "-m", f"workers.{role.name}"])
            yield from differ(f"{role.name}'s time", seconds(service["stop_grace_period"]), role.in_a_container)
            mounted = any(volume.startswith("runs:") for volume in service["volumes"])
            yield from differ(f"{role.name}'s folder", mounted, role.keeps is not Keeps.nobody)
    started = {name for one in ("", "kuhn", "cartpole_gamecore") for name in read(COMPOSE, {"EXPERIMENT": one})}
    of_roles = {name for name in services if any(one == name or one.startswith(f"{name}-") for one in started)}
    yield from differ("started by experiments", of_roles, names(table))


@holder
def swarm(table: Table) -> Complaints:
    services = read(DOCKER / "swarm" / "stack.yml", {})
    started = {name: one for name, one in services.items() if one.get("command", [""])[0] == "python"}
    if unknown := set(started) - names(table):
        yield f"roles that do not exist: {unknown}"
    for role in table:
        if role.module(Config()) is None or role.switch is not None:
            continue  # a stack is one plain run
        if (service := started.get(role.name)) is None:
            yield f"{role.name}: is not there"
            continue
        yield from differ(f"{role.name}'s time", seconds(service["stop_grace_period"]), role.in_a_container)


@holder
def kubernetes(table: Table) -> Complaints:
    found: dict[str, Any] = {}
    for overlay in (DOCKER / "kubernetes" / "overlays").iterdir():
        built = kustomize.build(overlay)
        scaled = {one["spec"]["scaleTargetRef"]["name"] for one in built if one["kind"] == "ScaledObject"}
        for one in built:  # test_kubernetes.py checks the time of a scaled one
            if one["kind"] in kustomize.WORKLOADS and one["metadata"]["name"] not in scaled:
                command = one["spec"]["template"]["spec"]["containers"][0].get("command", [])
                if command[:2] == ["python", "-m"]:
                    found[command[2].removeprefix("workers.")] = one
    yield from differ("workloads", set(found), names(table))
    for role in table:
        if (one := found.get(role.name)) is not None:
            keeps = role.keeps is not Keeps.nobody
            yield from differ(f"{role.name} is a", one["kind"], "StatefulSet" if keeps else "Deployment")
            time = one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            yield from differ(f"{role.name}'s time", float(time), role.in_a_container)


@holder
def the_pages(table: Table) -> Complaints:
    page = (ROOT / "docs" / "configuration.md").read_text()
    listed = set(re.findall(r"`workers\.(\w+)`", page.split("\n\n")[1]))
    yield from differ("docs/configuration.md", listed, names(table))
    page = (ROOT / "docs" / "training.md").read_text()
    for role in table:
        row = page.split("## Deaths")[1].split("| ")[{Restart.critical: 3, Restart.optional: 7}[role.restart]]
        if not re.search(rf"\b{role.name}\b", row, re.IGNORECASE):
            yield f"docs/training.md: what follows the death of {role.name} is not told"
    scaled = {f"`{role.count}=" for role in table if role.count and role.scaled and role.count != "actors"}
    section = page.split("## More or fewer actors")[1].split("\n## ")[0]
    yield from (f"docs/training.md: {one} is not said to be scaled" for one in scaled if one not in section)
    section = page.split("## Actors and learners on other hosts")[1].split("\n## ")[0]
    counts = {role.count for role in table if role.count}
    parts = (ROOT / "docs" / "kubernetes.md").read_text().split("## Workloads")[1].split("- **Probes**")[0]
    there = {role.name for role in table if re.search(rf"\b{role.name}\b", parts, re.IGNORECASE)}
    yield from differ("docs/kubernetes.md", there, names(table))
    yield from (f"docs/training.md: hosts do not start `{one}`" for one in counts if f"`{one}`" not in section)


holders = pytest.mark.parametrize("check", HOLDERS, ids=lambda check: check.__name__)


@holders
def test_each_holder_agrees_with_the_table(check: Callable[[Table], Complaints]) -> None:
    assert [*check(roles.ROLES)] == []


@holders
def test_each_holder_reports_an_added_row(check: Callable[[Table], Complaints]) -> None:
    assert [*check((*roles.ROLES, MADE_UP))] != []


def test_a_new_row_of_the_table_is_enough_to_add_a_role(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    watcher = dataclasses.replace(
        MADE_UP, count="evaluators", id="evaluator_id", device=None, grace=77.0, longest=99.0, answers=True
    )  # both settings exist
    before = Config(run="a-run", trial="t", evaluators=3, algorithm={"name": "ppo"})
    assert machine.processes_of(before) == 3 and roles.find("watcher") is None
    monkeypatch.setattr(roles, "ROLES", (*roles.ROLES, watcher))
    assert machine.processes_of(before) == 6
    spec = next(one for one in compiled(before, tmp_path).processes if one.role == "watcher")
    assert (spec.ranks, spec.setting, spec.grace, spec.longest) == (range(3), "evaluators", 77.0, 99.0)
    assert spec.answers and spec.line(1)[1:3] == ["-m", "workers.watcher"] and spec.line(1)[-1] == "evaluator_id=1"
    shared = dataclasses.replace(before, broker=BrokerConfig("external"), hosts={"a": {}, "b": {"evaluators": 2}})
    assert [*hosts.problems(shared)] == [] and hosts.given_totals(shared) == {"evaluators": 2}
    assert hosts.share(dataclasses.replace(shared, host="b"), watcher) == range(2)
    lacking = [*plain_checks.problems(dataclasses.replace(before, run=None, trial=None), "watcher")]
    assert [problem.partition(":")[0] for problem in lacking] == ["trial", "run"]
    with pytest.raises(ModuleNotFoundError, match=r"workers\.watching"):
        run_of_table("watcher", before)


@holders
def test_each_holder_reports_a_removed_row(check: Callable[[Table], Complaints]) -> None:
    fewer = [[role for role in roles.ROLES if role is not gone] for gone in roles.ROLES]
    assert any([*check(table)] for table in fewer)
