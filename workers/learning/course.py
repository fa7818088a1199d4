"""The contract between training and a kind of run: how a player is made (Recipe), and what steers it (Course).

A plain run implements both in `workers/learning/plain.py`, a league in `workers/leagues/recipe.py` and `course.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agents.policies import Policy


class Recipe(Protocol):
    """A way to make one player's policy and algorithm, with the names of its files and events.

    `legal_actions`: each step of its trajectories comes with a mask of legal actions. `has_generations`: the player may
    be reset, and its weights and segments carry their generation. `share`: this player's part of the run's steps.
    `averages`: the rates of the averages of its weights that are kept.
    """

    player: str
    folder: Path
    weights_event: str
    status_event: str
    algorithm_name: str
    algorithm_settings: Mapping[str, Any]
    legal_actions: bool
    has_generations: bool
    share: float
    averages: Sequence[float]

    def new_policy(self, generation: int) -> Policy:
        """Return a policy with fresh weights, the same for the same generation."""
        ...

    def take_network(self, stamp: Mapping[str, Any]) -> bool:
        """Make policies of the network that the `stamp` of weights names; return True if it is another than before.

        If the settings name the player's network, nothing changes.
        """
        ...

    def order_seed(self, generation: int) -> int:
        """Return the seed by which the algorithm orders its minibatches."""
        ...

    def load_teacher(self, name: str, student: Policy) -> Policy | None:
        """Return the teacher called `name` and keep a copy of it; None if it cannot be there yet.

        Raises ConfigurationError when it cannot teach `student`.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return the network and the environment, as checkpoints name them."""
        ...


class Course(Protocol):
    """The decisions about one player's learning, asked for around each update by every learner of the player."""

    def take_lead(self) -> None:
        """Prepare to lead, as this learner, one of several, does from now on. Raises Stopping."""
        ...

    def before_update(self) -> None:
        """Set the hyperparameters of the algorithm's next update."""
        ...

    def period_is_over(self) -> bool:
        """Return, after an update, whether `end_period` is due; the same for all learners of a player."""
        ...

    def end_period(self) -> None:
        """End a learning period and begin the next one; called for the leading learner only."""
        ...

    def verdict(self) -> str | None:
        """Return how training ended, None while there is more to do."""
        ...

    def extra_state(self) -> dict[str, Any]:
        """Return the JSON values that other learners need besides weights, optimizer and progress."""
        ...

    def load_extra_state(self, extra: Mapping[str, Any]) -> None:
        """Take over another learner's `extra_state`, before its weights are loaded."""
        ...

    def close(self, outcome: dict[str, Any] | None) -> None:
        """Write the last files and put the last weights into the pool; tell all processes that training is over.

        `outcome` is None for a run that was stopped. Called for the leading learner only.
        """
        ...
