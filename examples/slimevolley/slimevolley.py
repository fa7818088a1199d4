"""Volleyball of two slimes, written for old gym, as a league's game: two networks play against each other.

    python -m envs.check examples/slimevolley/slimevolley.py:SlimeVolley
    python -m workers.train league=mine league.env=examples/slimevolley/slimevolley.py:SlimeVolley seconds=600

Against the built-in player it is an environment of one agent: env.id=gym:slimevolleygym:SlimeVolley-v0.
"""

from typing import Any

from slimevolleygym import SlimeVolleyEnv

from envs.four_tuple_games import FourTupleGame


class SlimeVolley(FourTupleGame):
    """Each has five lives and loses one per lost ball. A return is lives won minus lives lost; 3,000 steps at most."""

    actions = SlimeVolleyEnv.action_table  # [forward, backward, jump]: nothing, forward, ..., backward
    max_return = 5.0

    def make(self) -> Any:
        """Return one court; the first player is on the right."""
        return SlimeVolleyEnv()

    def second_observation(self, env: Any, observation: Any) -> Any:
        """Return float [12]: position and speed of oneself, the ball and the other player, as seen from the left."""
        return env.game.agent_left.getObservation()
