"""The player of a plain run: made and trained as the run's own settings say, until a goal or a number of steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import envs
from agents import build_policy
from agents.policies import Policy
from tasks.events import STATUS, WEIGHTS
from warren.files import read_json, write_whole
from workers.config import teachers
from workers.config.schema import Config
from workers.learning import curve
from workers.learning.allreduce.ranks import Ranks
from workers.learning.outlets import Outlets
from workers.learning.player_state import PlayerState
from workers.learning.trainer import Trainer
from workers.runtime.run_status import verdict
from workers.runtime.session import PLAYER, Session


class PlainRecipe:
    """A Recipe by the settings of a run; `folder` is the run folder."""

    player, weights_event, status_event = PLAYER, WEIGHTS, STATUS
    has_generations, share = False, 1.0
    averages: Sequence[float] = ()

    def __init__(self, config: Config, folder: Path) -> None:
        self._config, self.folder = config, folder
        self.algorithm_name = str(config.algorithm["name"])
        self.algorithm_settings: Mapping[str, Any] = config.algorithm
        self._described = envs.describe(config.env.settings())
        self.legal_actions = self._described.masks

    def new_policy(self, generation: int) -> Policy:
        """See Recipe."""
        observed, actions, _ = self._described
        channels = self._config.env.settings().value_channels
        return build_policy(self._config.network, observed, actions, self._config.seed, channels)

    def take_network(self, stamp: Mapping[str, Any]) -> bool:
        """See Recipe: the settings name the network."""
        return False

    def order_seed(self, generation: int) -> int:
        """See Recipe."""
        return self._config.seed

    def load_teacher(self, name: str, student: Policy) -> Policy | None:
        """See Recipe."""
        teacher, network = teachers.load(name, student, self.folder)
        teachers.keep(teacher, network, name, self.folder)
        return teacher

    def describe(self) -> dict[str, Any]:
        """See Recipe."""
        return {"network": self._config.network, "environment": self._config.env.id}


class PlainCourse:
    """A Course without learning periods, which ends at the run's goal or at its last step."""

    def __init__(self, state: PlayerState, outlets: Outlets) -> None:
        self._state, self._outlets = state, outlets

    def take_lead(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def before_update(self) -> None:
        """Do nothing: the algorithm has its own schedules."""

    def period_is_over(self) -> bool:
        """Return False: there are no periods."""
        return False

    def end_period(self) -> None:
        """Do nothing: there are no periods."""

    def verdict(self) -> str | None:
        """See Course."""
        progress = self._state.progress
        return verdict(self._state.config, progress.steps, progress.mean_return)

    def extra_state(self) -> dict[str, Any]:
        """Return an empty dict: there is no extra state."""
        return {}

    def load_extra_state(self, extra: Mapping[str, Any]) -> None:
        """Do nothing: there is no extra state."""

    def close(self, outcome: dict[str, Any] | None) -> None:
        """Write the newest checkpoint, outcome.json and the learning curve; tell all processes that it is over."""
        state, outlets, config, folder = self._state, self._outlets, self._state.config, self._state.recipe.folder
        outcome = outcome or {"state": "stopped", "steps": state.progress.steps}
        outcome["weights"] = state.digest()
        outcome["timing"] = outlets.timing.shares() or read_json(folder / "outcome.json").get("timing", {})
        outlets.settle()
        attempts = outlets.attempts
        if not state.broken:
            attempts.make("write the last checkpoint", outlets.checkpoint)
        attempts.make("close the metrics", outlets.close_metrics)
        attempts.make(
            "write the outcome", lambda: write_whole(folder / "outcome.json", json.dumps(outcome, indent=1) + "\n")
        )
        attempts.make("draw the learning curve", lambda: curve.draw(folder, config))
        outlets.fire_status(outcome["state"], always=True)


def plain_trainer(
    session: Session, folder: Path, on_finished: Callable[[], None], ranks: Ranks | None = None
) -> Trainer:
    """Return the trainer of a plain run's player, resumed from the newest checkpoint in `folder`."""
    state = PlayerState(session, PlainRecipe(session.config, folder), ranks)
    outlets = Outlets(session, state)
    return Trainer(state, outlets, PlainCourse(state, outlets), on_finished, ranks)
