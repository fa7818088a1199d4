"""Facts of a run that all of its processes must agree on: its learners publish them, the others check theirs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from warren.errors import ConfigurationError
from workers.runtime.league_paths import league_of
from workers.runtime.lease import Lease, living
from workers.runtime.session import Session

Facts = dict[str, Any]


def publish_run_facts(session: Session, held: Lease, fields: Collection[str] | None = None) -> None:
    """Store this process's settings as those of the run; called by a learner when it starts.

    `held`: the learner's lease. The facts are valid as long as the lease, as an earlier learner's may be different.
    `fields`: those that its player's algorithm asks samplers to collect, once they are known. Raises redis.RedisError.
    """
    told: dict[str, Any] = {"by": held.token, "facts": _facts(session)}
    if fields is not None:
        player = session.config.player
        told["asked"] = {"player": player, "algorithm": _algorithm(session, player), "fields": list(fields)}
    session.redis.hset(_key(session), held.work, json.dumps(told))


def check_run_facts(session: Session, asked: Mapping[str, Collection[str]] | None = None) -> None:
    """Compare this process's settings with those that the run's living learners have published, if there are any.

    `asked`: player -> the fields that this process collects; None if it collects nothing. Raises ConfigurationError,
    with every setting that differs, and redis.RedisError.
    """
    published, run = _published(session), session.config.run
    theirs = {name: value for told in published for name, value in told["facts"].items()}
    problems = [
        f"{name}: {ours} here, but run {run} has {theirs[name]}; start this process with {name}={theirs[name]}"
        for name, ours in _facts(session).items()
        if name in theirs and theirs[name] != ours
    ]
    by_player = {told["asked"]["player"]: told["asked"] for told in published if "asked" in told}
    for player, fields in (asked or {}).items():
        of_run = by_player.get(player)
        if of_run is not None and sorted(fields) != sorted(of_run["fields"]):
            problems.append(
                f"algorithm: {_algorithm(session, player)!r} here has actors send {_named(fields)} of each step, but "
                f"run {run} is trained by {of_run['algorithm']!r}, which takes {_named(of_run['fields'])}; start this "
                "process with the run's algorithm"
            )
    if problems:
        raise ConfigurationError(problems)


def _published(session: Session) -> list[dict[str, Any]]:
    """Return the facts that each living learner has published."""
    stored = [json.loads(told) for told in session.redis.hvals(_key(session))]
    tokens = {one.token for one in living(session.redis, session.topology.key_prefix)} if stored else set()
    return [told for told in stored if told["by"] in tokens]


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


def _key(session: Session) -> str:
    return f"{session.topology.key_prefix}facts:learners"
