"""Chords: many calls, then one call with all of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery import chord

from tasks import compat


def gather(app: Any, calls: Sequence[Any], then: Any, on_error: Any | None = None) -> Any:
    """Send every signature of `calls` and, when all have answered, call `then` with the list of results, in order.

    The results meet in Redis (the chord's counter and sorted set) and travel to `then` in one message. When a call
    fails, `then` does not run and `on_error` receives the id of the failed chord. Returns the AsyncResult of `then`,
    which `answered` takes.
    """
    body = then.clone()
    if on_error is not None:
        body.link_error(on_error)
    result = chord(list(calls), app=app)(body)
    # Celery subscribes to the result of each call, which nothing here waits for. Left to the garbage collector, the
    # subscriptions would pile up, and end in some other thread at some other time.
    for call in result.parent.results:
        compat.give_up_result(app.backend, call)
    return result


def answered(app: Any, gathered: Any) -> int:
    """Return how many calls of a chord have answered so far. Raises redis.RedisError."""
    backend = app.backend
    return int(backend.client.zcard(backend.get_key_for_group(gathered.parent.id, ".j")))
