"""The table of data sources, by the name in an algorithm's needs."""

from __future__ import annotations

from collections.abc import Callable

from agents.algorithms.contract import PRIORITIZED, QUEUE, UNIFORM
from warren.registry import Registry
from workers.learning.data_source import DataSource, OnPolicyQueue
from workers.learning.player_state import PlayerState
from workers.learning.replay_source import ReplaySource

SOURCES: Registry[Callable[[PlayerState], DataSource]] = Registry("data source")


@SOURCES.register(QUEUE)
def queue(state: PlayerState) -> OnPolicyQueue:
    return OnPolicyQueue(state.config.max_staleness)


@SOURCES.register(UNIFORM)
@SOURCES.register(PRIORITIZED)
def replay(state: PlayerState) -> ReplaySource:
    return ReplaySource(state.config, state.algorithm.needs, state.recipe.folder, lambda: state.part_of_run())
