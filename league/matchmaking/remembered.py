"""Results that matchmakers computed of a view, kept until the version that they depend on changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from league.matchmaking.view import Roster

T = TypeVar("T")

# By the roster: it is replaced when anyone joins, so entries go with it.
_found: weakref.WeakKeyDictionary[Roster, dict[Hashable, tuple[Any, Any]]] = weakref.WeakKeyDictionary()


def remembered(roster: Roster, key: Hashable, version: Any, compute: Callable[[], T]) -> T:
    """Return the last result of `compute` for `key`; compute it anew where the roster or `version` is another."""
    known = _found.setdefault(roster, {})
    if key not in known or known[key][0] != version:
        known[key] = version, compute()
    found: T = known[key][1]
    return found
