"""A user's game with a sequence form, which makes it exactly solvable, and one with a wrong sequence form."""

from __future__ import annotations

from typing import Any

from envs.games import matrix_games
from envs.sequence_form import SequenceForm


class Coins(matrix_games.MatrixVectorEnv):
    """Matching pennies with stakes."""

    def __init__(self, num_envs: int, seed: int, stakes: float = 1.0) -> None:
        super().__init__(
            "coins", matrix_games.payoffs("payoffs", matrix=[[stakes, -stakes], [-stakes, stakes]]), num_envs, seed
        )

    @staticmethod
    def sequence_form(stakes: float = 1.0) -> SequenceForm:
        return matrix_games.sequence_form("payoffs", matrix=[[stakes, -stakes], [-stakes, stakes]])


class Wrong(Coins):
    @staticmethod
    def sequence_form(stakes: float = 1.0) -> Any:
        return [stakes]
