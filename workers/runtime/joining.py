"""What all processes of a run have to agree on, written down by its learner, compared by those who join by hand."""

from __future__ import annotations

import json
from typing import Any

from warren.errors import ConfigurationError
from workers.runtime.session import Session

Facts = dict[str, Any]


def found(session: Session) -> None:
    """This run is as this process is configured: for the learner, when it starts."""
    session.redis.set(_key(session), json.dumps(_facts(session)))


def join(session: Session) -> None:
    """Raises ConfigurationError, with every setting that differs, when the run's learner has others."""
    data = session.redis.get(_key(session))
    if data is None:  # no learner yet
        return
    theirs, run = json.loads(data), session.config.run
    problems = [
        f"{name}: {ours} here, but run {run} has {theirs[name]}; start this process with {name}={theirs[name]}"
        for name, ours in _facts(session).items()
        if name in theirs and theirs[name] != ours
    ]
    if problems:
        raise ConfigurationError(problems)


def _facts(session: Session) -> Facts:
    config = session.config
    if config.league is not None:
        return {"sampling": config.sampling.value, "league.env": config.league.get("env")}
    return {"sampling": config.sampling.value, "env.id": config.env.id}


def _key(session: Session) -> str:
    return f"{session.topology.key_prefix}facts"
