"""Leagues on the session's Redis, and a check of their streams."""

from __future__ import annotations

import redis

from league.redis.store import Store
from league.rules.settings import Settings
from league.state.league_state import LeagueState


def store_on(redis_url: str, run_name: str, settings: Settings | None = None, seed: int = 0) -> Store:
    """Return a new league with keys of its own."""
    store = Store(redis.Redis.from_url(redis_url), f"{run_name}:league:", seed=seed)
    store.create(settings or Settings())
    return store


def folded(store: Store) -> LeagueState:
    """Return the league as its stream alone tells it."""
    state = LeagueState()
    for _, event in store.events():
        state.apply(event)
    return state


def assert_replayed(store: Store) -> LeagueState:
    """Check that the live league and its replay are equal, bit by bit; return the live one."""
    live = store.load()
    assert live.differences(folded(store)) == []
    return live
