"""The runs of folders and servers: those with a launcher, and those that left traces when they were killed."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from kombu.exceptions import OperationalError

from tasks.admin.cleanup import Depths, remove_run
from tasks.app import create_app
from tasks.topology import Topology, key_prefix
from warren import redis_client
from warren.errors import BrokerError, ConfigurationError, unknown_name
from workers.doctor.rabbitmqctl import Control, command_line
from workers.launch.hosts.membership import Membership, Presence, Superseded, named, still_live
from workers.launch.hosts.scale_request import STOP, request
from workers.launch.traces.broker_names import Names, list_names
from workers.runtime.lease import Holder, leader_key, living
from workers.runtime.run_settings import card_key, read_card
from workers.servers import check_broker, check_redis, record, redact
from workers.servers.folder_lock import is_locked

_KEY = re.compile(r"warren\.([A-Za-z0-9][A-Za-z0-9_-]{0,79}):(.*)", re.DOTALL)
_PLAYER = re.compile(r"league:player:([^:]+)")


@dataclass(frozen=True)
class Servers:
    """A pair of servers to search. `folder`: of the run that owns the servers; None for servers that were named."""

    broker_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    folder: Path | None = None
    control: Control | None = field(default=None, repr=False, compare=False)  # the broker's rabbitmqctl
    management_url: str | None = field(
        default=None, repr=False, compare=False
    )  # the broker's management API, if it was named


@dataclass
class RunTraces:
    """The traces of one run on one pair of servers. `leader`: None if its launcher is gone. `keys`: number in Redis.

    `living`: its roles that hold a lease, with or without a launcher. `names`: its queues and exchanges, if the broker
    lists them.
    """

    run: str
    servers: Servers
    leader: Presence | None = None
    living: list[Holder] = field(default_factory=list)
    card: dict[str, Any] = field(default_factory=dict)
    keys: int = 0
    players: list[str] = field(default_factory=list)
    names: Names = field(default_factory=Names)

    @property
    def topology(self) -> Topology:
        """Return the run's names, as far as its traces show them."""
        return Topology(self.run, players=tuple(dict.fromkeys(["main", *self.players])))

    @property
    def gone(self) -> bool:
        """Return whether neither a launcher nor a role of the run is alive."""
        return self.leader is None and not self.living

    def describe(self) -> str:
        """Return a line of text about the run."""
        kind = self.card.get("kind", "run")
        where = f", folder {self.card['folder']}" if "folder" in self.card else ""
        if self.leader is not None:
            return f"{self.run}: {kind}, led by {self.leader.where}{where}"
        if self.living:
            return f"{self.run}: {kind}, running, without a launcher: {named(self.living)}{where}"
        left = f"{self.keys:,} keys in Redis"
        if self.names.queues or self.names.exchanges:
            left += f", {len(self.names.queues)} queues and {len(self.names.exchanges)} exchanges on the broker"
        return f"{self.run}: {kind} whose launcher is gone; it left {left}{where}"


@dataclass(frozen=True)
class Listing:
    """The runs on one pair of servers.

    `unseen`: why the broker could not be listed, "" if it was; runs without Redis keys are then missing from `runs`.
    """

    runs: list[RunTraces]
    unseen: str = ""


def list_runs(servers: Servers) -> Listing:
    """List the runs in Redis and on the broker, sorted by name. Raises BrokerError."""
    found = _by_keys(servers)
    if servers.folder is not None:  # a run's own servers end with it, so nothing is left on them
        return Listing([found[name] for name in sorted(found)])
    on_broker = list_names(servers.broker_url, servers.control, servers.management_url)
    for run, names in on_broker.runs.items():
        found.setdefault(run, RunTraces(run, servers)).names = names
    return Listing([found[name] for name in sorted(found)], on_broker.unseen)


def _by_keys(servers: Servers) -> dict[str, RunTraces]:
    client = redis_client.connect(servers.redis_url)
    found: dict[str, RunTraces] = {}
    try:
        for key in client.scan_iter(match=f"{key_prefix('*')}*", count=10_000):
            match = _KEY.fullmatch(key.decode(errors="replace"))
            if match is None:
                continue
            one = found.setdefault(match[1], RunTraces(match[1], servers))
            one.keys += 1
            if player := _PLAYER.fullmatch(match[2]):
                one.players.append(player[1])
        for one in found.values():
            leader: Any = client.get(leader_key(key_prefix(one.run)))
            one.leader = Presence.read(leader)
            one.living = living(client, key_prefix(one.run))
            one.card = read_card(client.get(card_key(key_prefix(one.run))))
    except redis.RedisError as error:
        raise BrokerError(f"Redis {redact(servers.redis_url)} is away: {error}") from error
    finally:
        client.close()
    return found


def own_servers(runs: Path) -> dict[Path, Servers]:
    """Return run folder -> its own servers, for folders below `runs` whose launcher is running."""
    found: dict[Path, Servers] = {}
    for folder in record.folders(runs):
        try:
            servers = record.read(folder)
        except (ConfigurationError, OSError):
            continue
        if record.runs_on(servers) and is_locked(folder):
            found[folder] = Servers(servers.broker_url, servers.redis_url, folder)
    return found


def find(name: str, places: Iterable[Servers]) -> RunTraces:
    """Return the run called `name`. Raises ConfigurationError, with near names, if it is on none of the servers."""
    everywhere: list[RunTraces] = []
    unseen: list[str] = []
    for servers in places:
        try:
            listing = list_runs(servers)
            everywhere += listing.runs
            unseen += [explain_unlisted(listing.unseen)] if listing.unseen else []
        except BrokerError as error:
            print(f"skipped: {error}", file=sys.stderr)
    for found in everywhere:
        if found.run == name:
            return found
    remedy = "; ".join(["python -m workers.runs lists them", *unseen])
    raise ConfigurationError(unknown_name("run", name, {found.run for found in everywhere}, remedy))


def explain_unlisted(why: str) -> str:
    """Return a sentence that names the runs that cannot be listed, and the remedy."""
    return (
        f"queues and exchanges of runs whose Redis keys are gone cannot be listed ({why}); give --rabbitmqctl COMMAND "
        "or --management-url URL, such as http://HOST:15672"
    )


def stop(found: RunTraces) -> list[str]:
    """Ask the run's launcher to end it, as Ctrl-C does; return the lines of its answer.

    Raises ConfigurationError for a run without a launcher.
    """
    if found.leader is None and found.living:
        raise ConfigurationError(f"{still_live(found.run, found.living)}, since the run has no launcher")
    if found.leader is None:
        raise ConfigurationError(
            f"{found.run}: its launcher is gone, so there is nothing to stop; "
            f"python -m workers.runs purge {found.run} removes its traces"
        )
    app = create_app(found.topology, found.servers.broker_url, found.servers.redis_url)
    answer = request(app, found.run, redis_client.connect(found.servers.redis_url), {}, command=STOP)
    return [str(line) for line in answer["done"]]


def purge(found: RunTraces) -> str:
    """Remove the run's queues, exchanges and keys; return a line that says so.

    Raises ConfigurationError while its launcher or one of its roles is alive.
    """
    if found.leader is not None:
        raise ConfigurationError(
            f"{found.run} is led by {found.leader.where}; stop it first: python -m workers.runs stop {found.run}"
        )
    servers, topology = found.servers, found.topology
    membership = Membership(servers.redis_url, topology)
    try:
        # Before taking the leader's place: a suspended launcher would notice that, and end the run.
        _refuse_live_roles(found.run, membership)
        # Take the leader's place: a launcher that starts meanwhile is refused, one that resumes finds it taken.
        membership.take(True, Presence("purge"))
        membership.hold()
        try:
            _refuse_live_roles(found.run, membership)  # again, right before the removal
            app = create_app(topology, servers.broker_url, servers.redis_url)
            client = redis_client.connect(servers.redis_url)
            remove_run(
                app, client, topology, membership.kept, lambda: membership.renew(True, Presence("purge")),
                found.names.queues, found.names.exchanges,
            )  # fmt: skip
        finally:
            membership.leave(True, "purge")
    except (redis.RedisError, OperationalError, OSError, Superseded) as error:
        raise BrokerError(f"run {found.run} could not be removed: {error}") from error
    return f"removed run {found.run}: {found.keys:,} keys, its queues and its exchanges"


def _refuse_live_roles(run: str, membership: Membership) -> None:
    """Raise ConfigurationError if a role of the run is alive."""
    if alive := membership.living():
        raise ConfigurationError(f"{still_live(run, alive)}, then purge it")


def waiting(found: RunTraces) -> dict[str, int]:
    """Return queue -> messages of a run that is gone, which purging would lose."""
    app = create_app(found.topology, found.servers.broker_url, found.servers.redis_url)
    depths = Depths(app, found.topology)
    try:
        return {name: count for name, count in depths.read().items() if count}
    finally:
        depths.close()


def places(options: argparse.Namespace, runs: Path = record.RUNS) -> list[Servers]:
    """Return the named servers, and the own servers of runs below `runs`. Raises ConfigurationError."""
    named = bool(options.broker_url), bool(options.redis_url)
    if any(named) and not all(named):
        raise ConfigurationError(
            "--broker-url and --redis-url: give both, or set WARREN_BROKER_URL and WARREN_REDIS_URL"
        )
    found = {(own.broker_url, own.redis_url): own for own in own_servers(runs).values()}
    if all(named):
        check_broker(options.broker_url)
        check_redis(options.redis_url)
        control = command_line(options.rabbitmqctl) if options.rabbitmqctl else None
        named_here = Servers(
            options.broker_url, options.redis_url, control=control, management_url=options.management_url
        )
        found.setdefault((options.broker_url, options.redis_url), named_here)
    return list(found.values())
