"""The place of a learner among those of its player: its lease, name, queue, ranks, and share of the messages."""

from __future__ import annotations

from typing import Any

from warren import redis_client
from workers.config.schema import Config, Sampling
from workers.learning.allreduce import compression
from workers.learning.allreduce.ranks import Ranks
from workers.runtime.connect import servers_are_remote
from workers.runtime.lease import Lease
from workers.runtime.session import Session

ALIKE = ("learners", "allreduce", "compression", "top_k")  # settings that are the same for all learners of a player
HELD_FROM_FAR = 3  # updates whose segments are held with remote servers: in work, being acknowledged, on their way


def held_at_once(config: Config, redis_url: str) -> int:
    """Return how many messages a learner may hold: when streaming, those of one update; later ones wait in the queue.

    When an update ends, the next messages arrive and are decoded within a few ms. If they were held earlier, the queue
    would have more room, and all data would be older. From remote servers messages take so long that they have to be on
    their way while earlier ones are learned from and acknowledged.
    """
    if config.sampling is Sampling.gathered:
        return 2
    return config.segments_per_share * (HELD_FROM_FAR if servers_are_remote(redis_url) else 1)


def ranks_of(config: Config, session: Session, player: str) -> Ranks | None:
    """Return the learners of `player` as ranks, as this one sees them; None if it is the only one."""
    count = config.learners_of(player)
    if count == 1:
        return None
    prefix = f"{session.topology.key_prefix}ranks:{player}"
    server = redis_client.host_of(session.redis)
    # Only torch has bfloat16; the configuration was verified not to ask Horovod for it.
    backend = "torch" if config.compression == compression.NOT_BY_HOROVOD else config.allreduce
    how = compression.build(config.compression, config.top_k)
    settings = {name: getattr(config, name) for name in ALIKE}
    return Ranks(session.redis, prefix, config.learner_id, count, backend, server, how, settings)


def lease_of(session: Session, player: str) -> Lease:
    """Return the lease of the learner of `player` that has this process's number."""
    number = f" {session.config.learner_id}" if session.config.learner_id else ""
    return session.lease(f"learner{number} of player {player}")


def name_of(config: Config, role: str = "learner") -> str:
    """Return the name of this learner, for its launcher and its Celery worker."""
    return f"{role}-{config.learner_id}" if config.learner_id else role


def queue_of(config: Config, session: Session, player: str) -> Any:
    """Return the queue that this learner consumes: if streaming, one that all learners share; else its own."""
    if config.sampling is not Sampling.gathered:
        return session.topology.learner_queue(player)
    return session.topology.rank_queue(player, config.learner_id)
