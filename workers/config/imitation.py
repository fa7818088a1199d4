"""Settings of `python -m workers.imitate`, which learns from recorded games, and their verification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents import Needs

IMITATE = "imitate"  # the command's name, used in place of a role's
# Settings of processes, servers and data that imitation does not have.
NOT_READ = (
    "sampling", "actors", "env_runners", "served_memory", "batch_segments", "max_staleness", "publish_every",
    "total_steps", "seconds", "learners", "allreduce", "compression", "top_k", "on_rank_loss", "actor_device",
    "deterministic", "restarts", "fork", "grace", "round_timeout", "flower_*", "event_rate", "task_events",
    "middleware", "hosts", "hosts.*", "host", "league_workers", "evaluators", "restore", "broker", "broker.*", "run",
    "gateway.*", "evaluation.*", "replay", "replay.*", "env.goal", "env.goal_episodes", "league.goal", "metrics.*",
    "log_format", "trackers",
)  # fmt: skip


@dataclass
class ImitationConfig:
    """Settings of `python -m workers.imitate`: which games are imitated, for how long, and how it is measured."""

    data: str | None = None  # a file of workers.play --record, a league's run folder with replays, a Minari dataset
    player: str | None = None  # in a league's games: the player to clone; null: both players
    games: int | None = None  # number of games at most (in a league each seat is one); null: all
    held_out: float = 0.1  # share of the games kept from learning, to measure progress
    passes: int = 20  # over the games
    evaluation_games: int = 100  # played by the clone at the end; 0: none


def problems(settings: ImitationConfig) -> Iterator[str]:
    """Yield a sentence for each setting that is wrong."""
    if settings.data is None:
        yield "imitation.data: not given; name recorded games (docs/algorithms.md)"
    elif not Path(settings.data).exists():
        yield f"imitation.data: {settings.data} does not exist; name recorded games (docs/algorithms.md)"
    for name, least in {"games": 1, "passes": 1, "evaluation_games": 0}.items():
        value = getattr(settings, name)
        if value is not None and value < least:
            yield f"imitation.{name}: {value} is too small; it must be at least {least}"
    if not 0 <= settings.held_out < 1:
        yield f"imitation.held_out: {settings.held_out:g} is not a share of the games; use 0 or more, and less than 1"


def unsuited(algorithm: str, needs: Needs) -> Iterator[str]:
    """Yield an error if an algorithm with these needs cannot learn from recorded games."""
    if needs.fields != ():
        yield f"algorithm: {algorithm!r} needs more of each step than recorded games hold; use algorithm=bc"
