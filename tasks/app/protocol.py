"""Checks of task messages (Celery's message protocol 2), made before anything relies on them.

Any client that can publish to an exchange can send anything at all. A field of the wrong type that is found in the
middle of a worker's loop ends the worker, and the next one that receives the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

ID_LENGTH = 255  # characters of an id at most: it becomes part of Redis keys

_TEXTS = ("root_id", "parent_id", "group", "shadow", "origin", "lang", "argsrepr", "kwargsrepr", "meth")
_NUMBERS = ("retries", "group_index", "replaced_task_nesting")
_MOMENTS = ("eta", "expires")
_LINKS = ("callbacks", "errbacks", "chain")


def problem_with_headers(headers: Any) -> str | None:
    """Return why the headers of a message are not those of a task, or None."""
    if not isinstance(headers, Mapping) or "task" not in headers:
        return "it has no header 'task': Warren takes Celery's message protocol 2 and no other"
    for name in ("task", "id"):
        value = headers.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= ID_LENGTH:
            return f"its header {name!r} is {_shown(value)}, not a text of 1 to {ID_LENGTH} characters"
    for name in _TEXTS:
        if not isinstance(headers.get(name), str | None):
            return f"its header {name!r} is {_shown(headers[name])}, not a text"
    for name in _NUMBERS:
        if not isinstance(headers.get(name), int | None):
            return f"its header {name!r} is {_shown(headers[name])}, not a whole number"
    for name in _MOMENTS:
        if (value := headers.get(name)) is not None and not is_moment(value):
            return f"its header {name!r} is {_shown(value)}, not a moment such as 2026-01-31T12:00:00+00:00"
    if not isinstance(headers.get("ignore_result"), bool | None):
        return f"its header 'ignore_result' is {_shown(headers['ignore_result'])}, neither true nor false"
    limits = headers.get("timelimit")
    if limits is not None and not (
        isinstance(limits, (list, tuple))
        and len(limits) == 2
        and all(isinstance(one, int | float | None) for one in limits)
    ):
        return f"its header 'timelimit' is {_shown(limits)}, not two numbers"
    return _problem_with_stamps(headers)


def _problem_with_stamps(headers: Mapping[str, Any]) -> str | None:
    names, stamps = headers.get("stamped_headers"), headers.get("stamps")
    if names is not None and not (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)):
        return f"its header 'stamped_headers' is {_shown(names)}, not a list of names"
    if not isinstance(stamps, Mapping | None):
        return f"its header 'stamps' is {_shown(stamps)}, not a table"
    return None


def problem_with_body(body: Any) -> str | None:
    """Return why the decoded body of a message is not (args, kwargs, embed), or None."""
    if not isinstance(body, (tuple, list)) or len(body) != 3:
        return f"its body is {_shown(body)}, not (args, kwargs, embed)"
    args, kwargs, embed = body
    if not isinstance(args, (tuple, list)):
        return f"its args are {_shown(args)}, not a list"
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        return f"its kwargs are {_shown(kwargs)}, not a mapping of names"
    if embed is None or not embed:
        return None if isinstance(embed, dict | None) else f"its embed is {_shown(embed)}, not a mapping"
    if not isinstance(embed, dict):
        return f"its embed is {_shown(embed)}, not a mapping"
    for name in _LINKS:
        links = embed.get(name)
        if links is not None and not (isinstance(links, (list, tuple)) and all(map(_is_signature, links))):
            return f"its embed has {name} {_shown(links)}, not a list of signatures"
    chord = embed.get("chord")
    return (
        None if chord is None or _is_signature(chord) else f"its embed has the chord {_shown(chord)}, not a signature"
    )


def is_moment(value: Any) -> bool:
    """Return whether `value` is a date and time in ISO 8601."""
    if not isinstance(value, str):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def seconds_until(moment: str) -> float:
    """Return the s from now until a moment in ISO 8601, UTC where it names no zone."""
    found = datetime.fromisoformat(moment)
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()


def problem_with_delay(seconds: float, longest: float) -> str | None:
    """Return why a call cannot wait in a worker for so many s until its eta, or None."""
    if seconds <= longest:
        return None
    return f"its eta is {seconds:.0f} s away, and a worker holds a call for {longest:.0f} s at most; send it later"


def _is_signature(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("task"), str)


def _shown(value: Any) -> str:
    """Return `value` as a short text for one line of a log."""
    text = repr(value) if isinstance(value, str | bytes | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}..."
