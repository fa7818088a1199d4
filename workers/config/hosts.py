"""The shares of hosts: the actors, learners, env runners, evaluators and league workers that each of them starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from warren.errors import unknown_name
from workers.config import roles
from workers.config.roles import Role
from workers.config.schema import Config

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
ON_LOOPBACK = ("private", "install", "embedded")  # modes of broker= whose servers listen on loopback


def problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each problem with the settings `hosts` and `host`."""
    if len(config.hosts) > 1 and config.broker.mode in ON_LOOPBACK:
        yield (
            f"broker: {config.broker.mode} starts servers that only this machine reaches, and hosts has "
            f"{', '.join(map(str, config.hosts))}; start servers that all hosts reach and give their URLs in "
            "WARREN_BROKER_URL and WARREN_REDIS_URL"
        )
    known = roles.counts(config)
    for host, counts in config.hosts.items():
        if not _NAME.fullmatch(str(host)):
            yield f"hosts.{host}: {host!r} is not a name; use letters, digits, '-' and '_', a letter first"
        if not isinstance(counts or {}, dict):
            yield f"hosts.{host}: {counts!r} is not a table of counts; write it as in hosts={{{host}: {{actors: 2}}}}"
            continue
        for name, count in (counts or {}).items():
            if name not in known:
                yield f"hosts.{host}: {unknown_name('count', str(name), known)}"
            elif type(count) is not int or count < 0:
                yield f"hosts.{host}.{name}: {count!r} is not a number of processes; use an integer of at least 0"
    shares = [counts.get("learners") for counts in config.hosts.values() if isinstance(counts, dict)]
    if any(shares) and not shares[0]:
        yield f"hosts.{leader(config)}.learners: none; the first learner is the leader's, whose folder it writes to"
    if config.host is not None and config.hosts and config.host not in config.hosts:
        yield f"host: {unknown_name('host', config.host, config.hosts)}"


def leader(config: Config) -> str | None:
    """Return the name of the host that leads, which is the first; None for a run on one machine."""
    return next(iter(config.hosts), None)


def leads(config: Config) -> bool:
    """Return whether this machine leads the run: it does unless `host` names a host other than the first."""
    return config.host is None or config.host == leader(config)


def total(config: Config, setting: str) -> int:
    """Return the number of processes of `setting` on all hosts together."""
    if any(setting in (counts or {}) for counts in config.hosts.values()):
        return sum(int((counts or {}).get(setting, 0)) for counts in config.hosts.values())
    return int(getattr(config, setting))


def ranks(config: Config, setting: str, host: str | None) -> range:
    """Return the numbers of the processes of `setting` that `host` starts; they count through the hosts in order.

    If no host gives a number for `setting`, the leader starts all of its processes.
    """
    first = leader(config)
    if first is None:
        return range(int(getattr(config, setting)))
    if not any(setting in (counts or {}) for counts in config.hosts.values()):
        return range(int(getattr(config, setting))) if host in (None, first) else range(0)
    begin = 0
    for name, counts in config.hosts.items():
        count = int((counts or {}).get(setting, 0))
        if name == (host or first):
            return range(begin, begin + count)
        begin += count
    return range(0)


def shares(config: Config) -> Iterator[tuple[Role, str | None, range]]:
    """Yield (role, player, numbers) of the processes that this host starts; player is None for roles not per player."""
    for role in roles.of(config):
        players: list[str | None] = [*config.league["players"]] if role.each_player and config.league else [None]
        for player in players:
            yield role, player, share(config, role, player)


def share(config: Config, role: Role, player: str | None = None) -> range:
    """Return the numbers of a role's processes that this host starts, for `player` where the role is per player."""
    if role.count is None:
        return range(int(leads(config)))
    return ranks(replace(config, learners=config.learners_of(player or config.player)), role.count, config.host)


def given_totals(config: Config) -> dict[str, Any]:
    """Return the counts that `hosts` sets, summed over the hosts: setting -> number."""
    named = [name for name in roles.counts() if any(name in (counts or {}) for counts in config.hosts.values())]
    return {name: total(config, name) for name in named}
