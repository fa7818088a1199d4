"""A league put into Redis in one step: either all of it is there or nothing, whenever the writing process dies."""

from __future__ import annotations

import time

from redis.exceptions import WatchError

from league.empirical_game.returns import Returns
from league.redis.event_stream import RESTORED
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.state.history import History
from league.state.records import match_fields, player_fields, progress_fields
from warren.errors import LeagueError


def restore(store: Store, history: History, returns: Returns, ready: bool = True) -> None:
    """Write the league that `history` holds, and the returns between its players, into a Redis without a league.

    The stream begins behind a checkpoint. With `ready=False` others may use the league only after `Store.open_up`.
    Raises LeagueError if Redis holds a league.
    """
    prefix, state, restored_at = store.prefix, history.state, str(time.time())
    with store.redis.pipeline(transaction=True) as pipeline:
        pipeline.watch(f"{prefix}settings")
        if pipeline.exists(f"{prefix}settings", f"{prefix}events"):
            raise LeagueError(holds_one(prefix))
        pipeline.multi()
        pipeline.hset(f"{prefix}settings", mapping=state.settings.to_fields())
        if state.counters:
            pipeline.hset(f"{prefix}counters", mapping=dict(state.counters))
        pipeline.set(f"{prefix}roster", state.roster_version)
        for version, (name, player) in enumerate(state.players.items(), 1):
            fields = {**player_fields(player), **progress_fields(state.progress[name]), "changed_at": restored_at}
            pipeline.hset(f"{prefix}player:{name}", mapping=fields)
            pipeline.zadd(f"{prefix}players", {name: player.slot})
            pipeline.zadd(f"{prefix}elo", {str(player.slot): state.ratings[player.slot]})
            # Every player counts as changed, each at a version of its own, up to that of the roster.
            pipeline.zadd(f"{prefix}changes", {name: min(version, state.roster_version)})
            pipeline.set(f"{prefix}payoff:{player.slot}", state.payoff.cells[player.slot].tobytes())
        for match in state.matches.values():
            pipeline.hset(f"{prefix}match:{match.id}", mapping=match_fields(match))
            pipeline.zadd(f"{prefix}leases", {match.id: match.deadline})
        pipeline.hset(f"{prefix}checkpoint", mapping={"id": history.last_event, **history.checkpoint()})
        # Only the id of this event counts: the next event gets a higher one, and `holds` finds it.
        pipeline.xadd(f"{prefix}events", {"event": RESTORED}, id=history.last_event)
        SharedReturns(store.redis, prefix).write(pipeline, returns)
        if ready:
            pipeline.set(f"{prefix}ready", 1)
        try:
            pipeline.execute()
        except WatchError:
            raise LeagueError(holds_one(prefix)) from None


def holds_one(prefix: str) -> str:
    """Return the error message for a league that is there already."""
    return f"Redis holds a league under {prefix!r} already; restore under another run, or wipe that one"
