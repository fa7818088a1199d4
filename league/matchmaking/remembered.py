"""Results that matchmakers computed from a view, kept until the version that they depend on changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from league.matchmaking.view import Roster

T = TypeVar("T")

# By roster: a new roster replaces the old one when a player joins, and these entries go with it.
_found: weakref.WeakKeyDictionary[Roster, dict[Hashable, tuple[Any, Any]]] = weakref.WeakKeyDictionary()


def remembered(roster: Roster, key: Hashable, version: Any, compute: Callable[[], T]) -> T:
    """Return the last result of `compute` for `key`; compute it anew if the roster or `version` has changed."""
    known = _found.setdefault(roster, {})
    if key not in known or known[key][0] != version:
        known[key] = version, compute()
    found: T = known[key][1]
    return found
