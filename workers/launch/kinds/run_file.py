"""The file of `python -m workers.run`: the user's services and environments, their numbers and their hosts.

    services:
      - {name: Actor, path: worker.py, num: 2}            # the class called `name` in the file `path`
      - {name: Learner, path: worker.py, kwargs: {lr: 1e-3}}
    envs:
      - {name: cartpole, path: env.py, num: 4}           # a script, or path: env.py:play for a function
    hosts:                                               # optional: which machine starts how many; the first leads
      master: {Learner: 1, Actor: 1}
      box-2: {Actor: 1, cartpole: 4}
    middleware: [traceparent.py:TraceParent]             # optional: around all calls, in every process of the run

Files of Oneagent, another framework, can be read too: they say `environments` for `envs`; `master` and `slave` for
hosts of those names, or `slaves`, a table of several.

`read` checks the file's shape; user_code.py checks the code at its paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from tasks.topology import Topology
from warren.errors import ConfigurationError, unknown_name
from workers.launch.kinds.user_code import Place, find
from workers.launch.kinds.user_middleware import find_all

TABLES = ("services", "envs", "hosts", "middleware")
SETTINGS = (*TABLES, "run", "join", "broker", "listen", "restarts", "folder", "log_level", "metrics_port")
FIELDS = {"services": ("name", "path", "num", "kwargs"), "envs": ("name", "path", "num", "kwargs")}
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True)
class Entry:
    """One entry of the file. `num`: its processes in the whole run; `finite`: it is an environment, which ends."""

    name: str
    place: Place
    num: int
    kwargs: Mapping[str, Any]
    finite: bool


@dataclass(frozen=True)
class EntryShare:
    """The part of an entry that one host starts: the processes of ranks `first` to `first + count - 1`."""

    entry: Entry
    first: int
    count: int


@dataclass
class RunFile:
    """The content of a file. `hosts`: host -> name of the entry -> processes; empty for one machine."""

    path: Path
    entries: list[Entry]
    hosts: dict[str, dict[str, int]] = field(default_factory=dict)
    run: str | None = None
    join: str | None = None
    broker: str = "auto"
    listen: str | None = None
    restarts: int = 5
    folder: str = "runs"
    log_level: str = "INFO"
    metrics_port: int | None = None
    middleware: tuple[Place, ...] = ()

    @property
    def leader(self) -> str | None:
        """Return the host that leads the run, which is the first; None for one machine."""
        return next(iter(self.hosts), None)

    def shares(self, host: str | None, empty: bool = False) -> list[EntryShare]:
        """Return the shares of `host`; everything without hosts. Ranks count through the hosts in the file's order.

        `empty`: with the shares of no process.
        """
        if not self.hosts:
            return [EntryShare(entry, 0, entry.num) for entry in self.entries]
        assert host is not None
        before = list(self.hosts)[: list(self.hosts).index(host)]
        shares = [
            EntryShare(
                entry,
                sum(self.hosts[other].get(entry.name, 0) for other in before),
                self.hosts[host].get(entry.name, 0),
            )
            for entry in self.entries
        ]
        return [share for share in shares if share.count or empty]


def read(path: Path, settings: Sequence[str] = ()) -> tuple[RunFile, list[str]]:
    """Read the file at `path` with `settings` of the command line on top; return it and the problems of its shape.

    Settings: `run=NAME`, `Actor.num=3`, `Learner.kwargs.lr=0.1`. Wrong entries are left out. Raises ConfigurationError
    if the file is not YAML.
    """
    tree, problems = _parse(path)
    problems += _override(tree, settings)
    entries = [*_entries(tree, "services", path, problems), *_entries(tree, "envs", path, problems)]
    names = [name for group in ("services", "envs") for name, _ in _named(tree, group)]
    problems += [f"{name}: two entries have this name; each needs its own" for name in _repeated(names)]
    if not tree.get("services") and not tree.get("envs"):
        problems.append(f"{path}: nothing to run; list services, envs or both, each with a name and a path")
    hosts = _hosts(tree, entries, problems)
    middleware = tuple(find_all(tree.get("middleware") or [], path.resolve().parent, problems))
    problems += _settings(tree)
    if hosts and not problems:
        total = {e.name: sum(counts.get(e.name, 0) for counts in hosts.values()) for e in entries}
        entries = [replace(e, num=total[e.name]) for e in entries]
    plain = {key: tree[key] for key in SETTINGS[len(TABLES) :] if key in tree}
    return RunFile(path, entries, hosts, middleware=middleware, **plain), problems


def _parse(path: Path) -> tuple[dict[str, Any], list[str]]:
    if path.is_dir():
        held = ", ".join(sorted(str(found) for found in path.glob("*.y*ml")))
        raise ConfigurationError(f"file {path}: is a folder; name a run's file{f', such as {held}' if held else ''}")
    if not path.is_file():
        here = sorted(str(found) for found in [*Path().glob("*.y*ml"), *Path().glob("examples/*/*.y*ml")])
        raise ConfigurationError(unknown_name("file", str(path), here))
    try:
        tree: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{path}: holds a {type(tree).__name__}; it must be a table with services and envs")
    tree, problems = _translated(tree)
    unknown = [*problems, *(unknown_name("setting", str(key), SETTINGS) for key in tree if key not in SETTINGS)]
    return {key: value for key, value in tree.items() if key in SETTINGS}, unknown


def _translated(tree: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return `tree` with Oneagent's names replaced by Warren's, and the problems of those."""
    tree, problems = dict(tree), []
    if "environments" in tree and "envs" in tree:
        problems.append("environments: the file has envs as well, which means the same; keep one of them")
    elif "environments" in tree:
        tree["envs"] = tree.pop("environments")
    tree.pop("environments", None)
    slaves = tree.pop("slaves", None)
    named = {"master": tree.pop("master", None), "slave": tree.pop("slave", None)}
    named |= slaves if isinstance(slaves, dict) else {"slaves": slaves}
    for host, counts in named.items():
        if isinstance(counts, dict):
            hosts = tree.setdefault("hosts", {})
            if isinstance(hosts, dict):
                hosts.setdefault(host, counts)
        elif counts is not None:
            problems.append(
                f"{host}: {counts!r} is not a table; write what that host starts, as in {host}: {{Actor: 2}}; give the "
                "addresses of servers in WARREN_BROKER_URL and WARREN_REDIS_URL"
            )
    return tree, problems


def _override(tree: dict[str, Any], settings: Sequence[str]) -> Iterator[str]:
    entries = {name: entry for group in ("services", "envs") for name, entry in _named(tree, group)}
    known = [key for key in SETTINGS if key not in TABLES]
    known += [f"{name}.{key}" for name in entries for key in ("num", "kwargs.KEY", "path")]
    for setting in settings:
        key, equals, text = setting.partition("=")
        name, dot, rest = key.partition(".")
        if not equals:
            yield f"{setting}: is not a setting; write settings as name=value"
        elif not dot and key in known:
            tree[key] = _value(text)
        elif name in entries and (rest in ("num", "path") or re.fullmatch(r"kwargs\.\w+", rest)):
            target = entries[name]
            if rest.startswith("kwargs."):
                target.setdefault("kwargs", {})
                target, rest = target["kwargs"], rest.removeprefix("kwargs.")
            if isinstance(target, dict):
                target[rest] = _value(text)
        else:
            yield unknown_name("setting", key, known)


def _value(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]  # type: ignore[call-overload,index]


def _named(tree: Mapping[str, Any], group: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, entry) of the entries in a group, which is a list of entries with names or a table by name."""
    entries = tree.get(group) or []
    if isinstance(entries, dict):
        return [(str(name), entry) for name, entry in entries.items() if isinstance(entry, dict)]
    if not isinstance(entries, list):
        return []
    return [(str(entry["name"]), entry) for entry in entries if isinstance(entry, dict) and "name" in entry]


def _entries(tree: Mapping[str, Any], group: str, path: Path, problems: list[str]) -> Iterator[Entry]:
    written = tree.get(group) or []
    if not isinstance(written, (dict, list)):
        problems.append(f"{group}: {written!r} is not a list of entries; write entries with a name and a path")
        return
    listed = written.values() if isinstance(written, dict) else written
    for index, entry in enumerate(listed):
        if not isinstance(entry, dict):
            problems.append(f"{group}[{index}]: {entry!r} is not an entry; write name, path and num")
        elif isinstance(written, list) and "name" not in entry:
            problems.append(f"{group}[{index}]: name: missing; use the class's name for a service")
    for name, entry in _named(tree, group):
        wrong = len(problems)
        where = f"{group}.{name}"
        if not _NAME.fullmatch(name):
            problems.append(
                f"{where}: {name!r} is not a name; use up to 40 letters, digits, '-' and '_', a letter first"
            )
        problems += [
            f"{where}.{key}: {unknown_name('key', str(key), FIELDS[group])}"
            for key in entry
            if key not in FIELDS[group]
        ]
        num = entry.get("num")
        if num is not None and (not isinstance(num, int) or isinstance(num, bool) or num < 1):
            problems.append(f"{where}.num: {num!r} is not a number of processes; use an integer of at least 1")
        kwargs = entry.get("kwargs") or {}
        if not isinstance(kwargs, dict):
            problems.append(f"{where}.kwargs: {kwargs!r} is not a table of arguments; write kwargs: {{name: value}}")
        written_path = entry.get("path")
        if not isinstance(written_path, str):
            problems.append(f"{where}.path: missing; name a file (worker.py), file.py:NAME, module or module:NAME")
            continue
        place, problem = find(written_path, path.resolve().parent)
        if problem:
            problems.append(f"{where}.path: {problem}")
        elif group == "envs" and place.attribute is None and kwargs:
            problems.append(
                f"{where}.kwargs: a script takes none; name one of its functions, path: {written_path}:FUNCTION"
            )
        if len(problems) == wrong:
            yield Entry(name, place, num or 1, kwargs, finite=group == "envs")


def _hosts(tree: Mapping[str, Any], entries: list[Entry], problems: list[str]) -> dict[str, dict[str, int]]:
    written = tree.get("hosts") or {}
    if not isinstance(written, dict) or not all(isinstance(counts or {}, dict) for counts in written.values()):
        problems.append("hosts: write the name of each host with what it starts, as in hosts: {master: {Actor: 2}}")
        return {}
    nums = {name: entry.get("num") for group in ("services", "envs") for name, entry in _named(tree, group)}
    hosts = {
        str(host): {str(name): count for name, count in (counts or {}).items()} for host, counts in written.items()
    }
    for host, counts in hosts.items():
        if not _NAME.fullmatch(host):
            problems.append(f"hosts.{host}: {host!r} is not a name; use letters, digits, '-' and '_', a letter first")
        problems += [f"hosts.{host}: {unknown_name('entry', name, nums)}" for name in counts if name not in nums]
        problems += [
            f"hosts.{host}.{name}: {count!r} is not a number of processes; use an integer of at least 0"
            for name, count in counts.items()
            if not isinstance(count, int) or isinstance(count, bool) or count < 0
        ]
    if not hosts or problems:
        return hosts
    for entry in entries:
        total = sum(counts.get(entry.name, 0) for counts in hosts.values())
        if total == 0:
            problems.append(f"hosts: none of {', '.join(hosts)} starts {entry.name}; give one a count of it")
        elif nums[entry.name] not in (None, total):
            problems.append(f"{entry.name}: num is {nums[entry.name]}, and the hosts start {total}; leave num out")
    if tree.get("join") is not None:
        problems.append("join: does not fit a file with hosts, which join by themselves; start it with --host NAME")
    return hosts


def _settings(tree: Mapping[str, Any]) -> Iterator[str]:
    for key in ("run", "join"):
        if (name := tree.get(key)) is not None:
            try:
                Topology(name if isinstance(name, str) else "")
            except ConfigurationError:
                yield f"{key}: {name!r} cannot name a run; use 1 to 80 letters, digits, '-' and '_'"
    if tree.get("run") is not None and tree.get("join") is not None:
        yield f"join: {tree['join']!r} and run: {tree['run']!r}: a run is led here or joined, not both; leave one out"
    restarts = tree.get("restarts", 0)
    if not isinstance(restarts, int) or isinstance(restarts, bool) or restarts < 0:
        yield f"restarts: {restarts!r} is not a number of restarts; use an integer of at least 0"
    if not isinstance(tree.get("folder", ""), str):
        yield f"folder: {tree['folder']!r} is not the name of a folder; write a path"
    if str(tree.get("log_level", "INFO")).upper() not in LEVELS:
        yield f"log_level: {tree['log_level']!r} is not one of {', '.join(LEVELS)}"
    port = tree.get("metrics_port")
    if port is not None and (type(port) is not int or not 0 <= port < 65536):
        yield f"metrics_port: {port!r} is not a port; it must be from 1 to 65535, or 0 for any that is free"
    from workers.servers import MODES

    if tree.get("broker", "auto") not in MODES:
        yield unknown_name("broker:", str(tree["broker"]), MODES)


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
