"""How many actors a run has at the moment: the launcher writes it, the learner's next round reads it."""

from __future__ import annotations

from workers.runtime.session import Session


def actors_now(session: Session) -> int:
    """How many actors a round is to ask: as configured, or as changed since. Raises redis.RedisError."""
    return int(session.redis.get(actors_key(session)) or session.config.actors)


def actors_key(session: Session) -> str:
    """Where the number stands."""
    return f"{session.topology.key_prefix}actors"
