"""Requests to the launcher of a run; scaling.py answers them. Imports no torch, for quick command lines."""

from __future__ import annotations

import re
import secrets
from typing import Any

import redis
from kombu.exceptions import OperationalError

from tasks.topology import key_prefix
from warren.errors import BrokerError, ConfigurationError, unknown_name
from workers.runtime.lease import leader_key

NODE, COMMAND, STOP = "launcher", "scale", "stop"
CHANGE = re.compile(r"([+-]?)(\d{1,4})")  # of a count: N, +N, -N
ANSWER_WITHIN = 10.0  # s that a launcher has to carry out a request


def redis_time(client: Any) -> float:
    """Return the time of Redis in s, a clock that both ends of a request share."""
    seconds, microseconds = client.time()
    return float(seconds) + float(microseconds) / 1e6


def request(
    app: Any, run: str, client: Any, wanted: dict[str, str], identity: str | None = None, command: str = COMMAND
) -> dict[str, Any]:
    """Ask the launcher of `run` for the counts `wanted` (setting -> "4", "+1", "-1").

    Returns {"done": [...], "counts": {...}}. A launcher that is too late does nothing. `identity`: of this request;
    repeating it returns the same answer and carries nothing out again. Raises ConfigurationError for an unknown run
    (with near names) and for impossible counts, BrokerError if a server is away or the launcher does not answer.
    """
    identity = identity or secrets.token_hex(6)
    try:
        runs = launched(client)
        if run not in runs:
            raise ConfigurationError(f"--run: {unknown_name('run with a launcher', run, runs)}")
        body = {"wanted": wanted, "identity": identity, "until": redis_time(client) + ANSWER_WITHIN}
        answers = app.control.broadcast(command, body, destination=[NODE], reply=True, timeout=ANSWER_WITHIN, limit=1)
    except (OperationalError, OSError, redis.RedisError) as error:
        raise BrokerError(f"a server of run {run} is away: {error}") from error
    if not answers:
        raise BrokerError(
            f"the launcher of run {run} did not answer within {ANSWER_WITHIN:.0f} s, and will not carry this out any "
            f"more if it has not yet; to repeat this request without doing it twice, add --request {identity}"
        )
    (answer,) = answers[0].values()
    if not isinstance(answer, dict) or "error" in answer:
        raise ConfigurationError(str(answer["error"]) if isinstance(answer, dict) else f"no answer: {answer!r}")
    return dict(answer)


def launched(client: Any) -> list[str]:
    """Return the names of the runs on a Redis whose launcher is running."""
    pattern = re.compile(re.escape(leader_key(key_prefix("\0"))).replace("\0", "([^:]+)"))
    keys = (key.decode(errors="replace") for key in client.scan_iter(match=leader_key(key_prefix("*")), count=10_000))
    return sorted(match[1] for key in keys if (match := pattern.fullmatch(key)))
