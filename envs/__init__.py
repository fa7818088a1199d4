"""Environments of any source behind one API: gymnasium's for one agent, TurnVectorEnv for games of several."""

from envs.one_agent.gamecore_actors import has_masks, is_gamecore
from envs.registry import as_arrays, describe, make, make_vector, reward_threshold, spaces
from envs.settings import EnvSettings
from envs.sources import is_two_player, make_two_player
from envs.two_player.chance import Chance
from envs.two_player.vector_env import Turn, TurnVectorEnv, TwoPlayerVectorEnv
from envs.vector import VectorEnv

__all__ = [
    "Chance",
    "EnvSettings",
    "Turn",
    "TurnVectorEnv",
    "TwoPlayerVectorEnv",
    "VectorEnv",
    "as_arrays",
    "describe",
    "has_masks",
    "is_gamecore",
    "is_two_player",
    "make",
    "make_two_player",
    "make_vector",
    "reward_threshold",
    "spaces",
]
