"""Volleyball of two slimes, written for old gym, as a league's game: each player a network, one against the other.

    python -m envs.check examples/slimevolley/slimevolley.py:SlimeVolley
    python -m workers.train league=mine league.env=examples/slimevolley/slimevolley.py:SlimeVolley seconds=600

Against its own built-in player it is one agent's environment: env.id=gym:slimevolleygym:SlimeVolley-v0.
"""

from typing import Any

from slimevolleygym import SlimeVolleyEnv

from envs.four_tuple_games import FourTupleGame


class SlimeVolley(FourTupleGame):
    """Each has five lives; who loses a ball loses one. A return is lives won less lives lost, 3,000 steps at most."""

    actions = SlimeVolleyEnv.action_table  # [forward, backward, jump]: nothing, forward, ..., backward
    max_return = 5.0

    def make(self) -> Any:
        """One court; the first player is on the right."""
        return SlimeVolleyEnv()

    def second_observation(self, env: Any, observation: Any) -> Any:
        """float [12]: own place and speed, the ball's, the other's, seen from the left."""
        return env.game.agent_left.getObservation()
