"""Asking the launcher of a run that goes on; what answers is in scaling.py. A command line imports this, not torch."""

from __future__ import annotations

import re
from typing import Any

import redis
from kombu.exceptions import OperationalError

from tasks.topology import key_prefix
from warren.errors import BrokerError, ConfigurationError, unknown_name

NODE, COMMAND = "launcher", "scale"
ANSWER_WITHIN = 10.0  # s that a launcher has to carry out a request


def launcher_key(run: str) -> str:
    """The Redis key that a run with a launcher has."""
    return f"{key_prefix(run)}launcher"


def request(app: Any, run: str, client: Any, wanted: dict[str, str]) -> dict[str, Any]:
    """Ask the launcher of `run` for the counts `wanted` (setting -> "4", "+1", "-1"): {"done": [...], "counts": {...}}.

    Raises ConfigurationError for a run that is not there (with near names) and for counts that cannot be, BrokerError
    when a server is away or the launcher does not answer.
    """
    try:
        runs = launched(client)
        if run not in runs:
            raise ConfigurationError(f"--run: {unknown_name('run with a launcher', run, runs)}")
        answers = app.control.broadcast(
            COMMAND, {"wanted": wanted}, destination=[NODE], reply=True, timeout=ANSWER_WITHIN, limit=1
        )
    except (OperationalError, OSError, redis.RedisError) as error:
        raise BrokerError(f"a server of run {run} is away: {error}") from error
    if not answers:
        raise BrokerError(f"the launcher of run {run} did not answer within {ANSWER_WITHIN:.0f} s; was it killed?")
    (answer,) = answers[0].values()
    if "error" in answer:
        raise ConfigurationError(answer["error"])
    return dict(answer)


def launched(client: Any) -> list[str]:
    """The runs on a Redis that have, or had, a launcher."""
    pattern = re.compile(re.escape(launcher_key("\0")).replace("\0", "(.+)"))
    keys = (key.decode() for key in client.scan_iter(match=launcher_key("*"), count=10_000))
    return sorted(match[1] for key in keys if (match := pattern.fullmatch(key)))
