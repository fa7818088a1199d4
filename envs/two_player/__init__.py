"""The interface of games of two or more players: many at once, in turns or at the same time."""

from envs.two_player.vector_env import PLAYERS, Turn, TurnVectorEnv, TwoPlayerVectorEnv

__all__ = ["PLAYERS", "Turn", "TurnVectorEnv", "TwoPlayerVectorEnv"]
