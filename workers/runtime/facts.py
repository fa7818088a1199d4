"""Facts of a run that all of its processes must agree on: its learner publishes them, the others check theirs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from warren.errors import ConfigurationError
from workers.runtime.league_paths import league_of
from workers.runtime.session import Session

Facts = dict[str, Any]


def publish_run_facts(session: Session, fields: Collection[str] | None = None) -> None:
    """Store this process's settings as those of the run; called by a learner when it starts.

    `fields`: what the algorithm of its player asks samplers to collect, once that is known. Raises redis.RedisError.
    """
    session.redis.set(_key(session), json.dumps(_facts(session)))
    if fields is not None:
        player = session.config.player
        asked = {"algorithm": _algorithm(session, player), "fields": list(fields)}
        session.redis.hset(_key(session, "asked"), player, json.dumps(asked))


def check_run_facts(session: Session, asked: Mapping[str, Collection[str]] | None = None) -> None:
    """Compare this process's settings with those that the run's learner has published, if it has.

    `asked`: what this process collects of each player, None when it collects nothing. Raises ConfigurationError, with
    every setting that differs, and redis.RedisError.
    """
    data = session.redis.get(_key(session))
    if data is None:  # no learner yet
        return
    theirs, run = json.loads(data), session.config.run
    problems = [
        f"{name}: {ours} here, but run {run} has {theirs[name]}; start this process with {name}={theirs[name]}"
        for name, ours in _facts(session).items()
        if name in theirs and theirs[name] != ours
    ]
    for player, fields in (asked or {}).items():
        published = session.redis.hget(_key(session, "asked"), player)
        of_run = None if published is None else json.loads(published)
        if of_run is not None and sorted(fields) != sorted(of_run["fields"]):
            problems.append(
                f"algorithm: {_algorithm(session, player)!r} here has actors send {_named(fields)} of each step, but "
                f"run {run} is trained by {of_run['algorithm']!r}, which takes {_named(of_run['fields'])}; start this "
                "process with the run's algorithm"
            )
    if problems:
        raise ConfigurationError(problems)


def _facts(session: Session) -> Facts:
    config = session.config
    if config.league is not None:
        return {"sampling": config.sampling.value, "league.env": config.league.get("env")}
    return {"sampling": config.sampling.value, "env.id": config.env.id}


def _algorithm(session: Session, player: str) -> str:
    config = session.config
    settings = config.algorithm if config.league is None else league_of(config).algorithm_of(player)
    return str(settings.get("name", "ppo"))


def _named(fields: Collection[str]) -> str:
    return ", ".join(sorted(fields)) or "nothing that the policy said"


def _key(session: Session, what: str = "") -> str:
    return f"{session.topology.key_prefix}facts{what and f':{what}'}"
