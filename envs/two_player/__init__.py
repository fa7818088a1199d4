"""The interface of games of two players: many at once, in turns or at the same time."""

from envs.two_player.vector_env import PLAYERS, Turn, TwoPlayerVectorEnv

__all__ = ["PLAYERS", "Turn", "TwoPlayerVectorEnv"]
