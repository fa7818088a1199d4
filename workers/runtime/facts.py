"""Facts of a run that all of its processes must agree on: its learner publishes them, the others check theirs."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from warren.errors import ConfigurationError
from workers.runtime.session import Session

Facts = dict[str, Any]


def publish_run_facts(session: Session, fields: Collection[str] | None = None) -> None:
    """Store this process's settings as those of the run; called by the learner when it starts.

    `fields`: what its algorithm asks samplers to collect, once that is known. Raises redis.RedisError.
    """
    facts = _facts(session)
    if fields is not None:
        facts |= {"algorithm": _algorithm(session), "fields": list(fields)}
    session.redis.set(_key(session), json.dumps(facts))


def check_run_facts(session: Session, fields: Collection[str] | None = None) -> None:
    """Compare this process's settings with those that the run's learner has published, if it has.

    `fields`: what this process collects, None when it collects nothing. Raises ConfigurationError, with every setting
    that differs, and redis.RedisError.
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
    if fields is not None and sorted(fields) != sorted(theirs.get("fields", fields)):
        problems.append(
            f"algorithm: {_algorithm(session)!r} here has actors send {_named(fields)} of each step, but run {run} is "
            f"trained by {theirs['algorithm']!r}, which takes {_named(theirs['fields'])}; start this process with the "
            "run's algorithm"
        )
    if problems:
        raise ConfigurationError(problems)


def _facts(session: Session) -> Facts:
    config = session.config
    if config.league is not None:
        return {"sampling": config.sampling.value, "league.env": config.league.get("env")}
    return {"sampling": config.sampling.value, "env.id": config.env.id}


def _algorithm(session: Session) -> str:
    config = session.config
    return str((config.algorithm if config.league is None else config.league.get("algorithm", {})).get("name", "ppo"))


def _named(fields: Collection[str]) -> str:
    return ", ".join(sorted(fields)) or "nothing that the policy said"


def _key(session: Session) -> str:
    return f"{session.topology.key_prefix}facts"
