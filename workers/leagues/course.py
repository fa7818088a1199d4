"""Learning periods of a league's player: its first weights, its hyperparameters, and what follows each period."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from celery.utils.log import get_logger

from agents import checkpoints
from league.matchmaking import KINDS
from league.matchmaking.view import NEWEST, ModelRef
from league.models.pool import LEAGUE
from league.rules.names import average_name
from league.state.periods import LearningPeriod
from warren.errors import (
    CheckpointError,
    ConfigurationError,
    LeagueError,
    PlayerError,
    PlayerStopped,
    PlayerUnavailable,
    PoolError,
)
from workers.config.league import LeagueConfig
from workers.leagues.client import LeagueClient
from workers.leagues.recipe import LeagueRecipe
from workers.leagues.wire import period_from_wire, period_to_wire
from workers.learning.allreduce.ranks import Ranks, Stopping
from workers.learning.outlets import Outlets
from workers.learning.player_state import PlayerState
from workers.learning.trainer import Trainer
from workers.runtime.session import Session

logger = get_logger(__name__)

OPEN_AGAIN = 1.0  # s between tries to get a learning period of a player that is paused, or trained by another
STOPPED = ("frozen", "removed")  # set by a person; the player learns no more


class LeagueCourse:
    """The Course of a league's player. Of several ranks only the leading one calls the league; others load its state.

    The player's generation counts its resets. Weights carry it, so a learner that restarts after a crash and an actor
    that gets new weights can tell whether the player was reset.

    `status` is "on", "paused", or why learning ends (see STOPPED).
    """

    def __init__(
        self,
        state: PlayerState,
        outlets: Outlets,
        recipe: LeagueRecipe,
        league: LeagueConfig,
        session: Session,
        client: LeagueClient,
        stopping: threading.Event,
        on_finished: Callable[[], None],
    ) -> None:
        self._state, self._outlets, self._recipe, self._league = state, outlets, recipe, league
        self._pool, self._client, self._stopping, self._on_finished = session.pool, client, stopping, on_finished
        self.player, self.status = recipe.player, "on"
        self.period: LearningPeriod | None = None
        self._period_end = 0  # steps
        self._refused = ""  # the last complaint about hyperparameters

    # Around an update.

    def take_lead(self) -> None:
        """Take up the learning period. Raises Stopping if the player learns no more or this learner is to stop."""
        try:
            self.begin()
        except PlayerStopped as error:
            self._on_finished()
            raise Stopping(str(error)) from None
        except LeagueError as error:
            if self._stopping.is_set():
                raise Stopping(str(error)) from None
            raise

    def before_update(self) -> None:
        """Set the hyperparameters for this point of the period."""
        assert self.period is not None
        progress = self._league.progress_in_period(self._state.progress.steps, self._period_end)
        try:
            self._state.algorithm.adjust(self.period.at(progress))
        except ConfigurationError as error:  # a person has set them: a mistake must not stop learning
            if str(error) != self._refused:
                self._refused = str(error)
                logger.error("player %s keeps its earlier hyperparameters: %s", self.player, error)

    def period_is_over(self) -> bool:
        """See Course."""
        return self._state.progress.steps >= self._period_end

    def end_period(self) -> None:
        """Hand the period back and take up the next one; the league decides by the player's kind what follows."""
        assert self.period is not None
        number, progress = self.period.number, self._state.progress
        self._outlets.pool_weights()  # the league freezes them if it takes a snapshot
        snapshots = self._league.snapshots_of(self.player, progress.version)
        for rate in self._state.averages.rates:
            self._outlets.pool_average(rate, average_name(self.player, rate))
        try:
            run = self._state.steps_of_run
            outcome = self._client.close_period(self.period, progress.steps, progress.version, run, snapshots)
            logger.info("period %d at %d steps: %s %s", number, progress.steps, outcome.status, outcome.decision)
            self._take_up()
        except PlayerError as error:
            logger.info("%s", error)
            try:
                # Paused, or taken over while this learner was away: wait, then begin as the league says.
                if self.keep() not in STOPPED:
                    self.begin()
            except PlayerStopped:  # while this learner waited
                self.keep()

    def verdict(self) -> str | None:
        """See Course: a player learns for as long as the league wants it to."""
        return self.status if self.status in STOPPED else None

    def extra_state(self) -> dict[str, Any]:
        """Return the period that is under way."""
        period = None if self.period is None else period_to_wire(self.period, "")
        return {"period": period, "period_end": self._period_end}

    def load_extra_state(self, extra: Mapping[str, Any]) -> None:
        """Take over the period of the leading rank."""
        if extra["period"] is not None:
            self.period, _ = period_from_wire(extra["period"])
            self._period_end = int(extra["period_end"])
            self._recipe.pool_is_back = True
            self._state.teach()

    def close(self, outcome: dict[str, Any] | None) -> None:
        """Write the newest checkpoint and put the newest weights into the pool, for a snapshot of the league."""
        outlets, attempts = self._outlets, self._outlets.attempts
        outlets.settle()
        if self._state.progress.updates and not self._state.broken:
            attempts.make("write the last checkpoint", outlets.checkpoint)
            attempts.make("publish the last weights", outlets.pool_weights)
        attempts.make("close the metrics", outlets.close_metrics)
        outlets.fire_status("stopped" if outcome is None else outcome["state"], always=True)

    # Learning periods.

    def begin(self) -> None:
        """Take up the learning period that the league has for the player; wait while the player is paused or taken.

        Raises PlayerError when the player does not exist, PlayerStopped when it learns no more, LeagueError when this
        learner is told to stop meanwhile.
        """
        said = False
        while True:
            try:
                self._take_up()
                return
            except PlayerUnavailable as error:
                if not said:
                    logger.info("player %s: waiting: %s", self.player, error)
                    said = True
            if self._stopping.wait(OPEN_AGAIN):
                raise LeagueError(f"player {self.player!r} is paused or taken, and this learner was told to stop")

    def keep(self) -> str:
        """Report the player's steps to the league and extend its period's lease; return the player's new `status`."""
        if self.period is not None:
            status = self._client.progress(self.period, self._state.progress.steps, self._league.lease)
            # Between two periods, "lost" only means that the old one is over.
            if status != self.status and status in ("on", "paused", *STOPPED):
                logger.info("player %s: %s", self.player, status)
                self.status = status
        return self.status

    def _take_up(self) -> None:
        state = self._state
        period, kind = self._client.open_period(self.player, self._league.lease)
        self.period, self._recipe.pool_is_back = period, True
        state.catch_up()  # from now on a saved league is known to be restored
        state.teach()
        self._period_end = self._league.period_end(period.begun_at)
        unlearned = state.progress.version == 0 and state.progress.updates == 0
        if period.generation != state.generation or (unlearned and period.model is not None):
            self._start_from(period.model, period.generation, anew=period.from_initial)
        if unlearned and period.steps == 0 and KINDS[kind].begins_frozen:
            self._outlets.publish()
            self._client.snapshot(self.player, state.progress.version)

    def _start_from(self, model: ModelRef | None, generation: int, anew: bool) -> None:
        """Start from the weights of `model` (None: fresh ones) with a new optimizer.

        `anew`: schedules begin again too, as after a reset; after an exploit they continue at the player's steps.
        """
        state = self._state
        if model is not None and model.version == NEWEST:
            try:
                model = self._pool.freeze(model.player, kept_by=LEAGUE)  # that player learns on
            except PoolError as error:
                raise PlayerUnavailable(f"it is to begin with the newest weights of {model.player}: {error}") from None
        if model is not None and self._pool.info(model) is None:
            if anew and not state.progress.updates:
                raise PlayerUnavailable(f"its initial model {model} is not in the pool yet")
            named, model, anew = model, self._newest_of(generation), False
            logger.warning(
                "player %s: the pool has lost %s, with which generation %d was to start; starting from %s",
                self.player, named, generation, model or "the weights of this learner's checkpoint",
            )  # fmt: skip
            if model is None:
                self._continue_as(generation)
                return
        found = None if model is None else checkpoints.weights_from_bytes(self._pool.get(*model).data)
        if found is not None:
            self._recipe.take_network(found[1])
            try:
                checkpoints.check_weights(self._recipe.new_policy(generation), found[0], str(model))
            except CheckpointError as error:  # a person chose the model, or it is an added player's
                logger.error("player %s keeps its weights in generation %d: %s", self.player, generation, error)
                self._continue_as(generation)
                return
        state.generation = generation
        state.rebuild()
        if model is not None and found is not None:
            tensors, stamp = found
            checkpoints.load_weights(state.policy, tensors, str(model))
            if model.player == self.player:  # the league was set back to this player's earlier weights
                state.schedules_from = int(stamp.get("schedules_from", 0))
        if anew:
            state.schedules_from = state.progress.steps
        state.set_clock()
        self._take_next_version()
        logger.info("player %s starts anew from %s, generation %d", self.player, model or "fresh weights", generation)

    def _continue_as(self, generation: int) -> None:
        """Keep the present weights, and count them as those of `generation`."""
        self._state.generation = generation
        self._take_next_version()

    def _take_next_version(self) -> None:
        self._state.progress.version += 1
        self._outlets.checkpoint_soon()  # until it is written, a crash would bring back the old generation

    def _newest_of(self, generation: int) -> ModelRef | None:
        """Return the newest model of this player in the pool; None if there is none or its generation is another."""
        newest = self._pool.newest(self.player)
        if newest is None:
            return None
        _, stamp = checkpoints.weights_from_bytes(newest.data)
        return ModelRef(self.player, newest.version) if int(stamp.get("generation", 0)) == generation else None


def league_trainer(
    session: Session,
    league: LeagueConfig,
    client: LeagueClient,
    stopping: threading.Event,
    on_finished: Callable[[], None],
    ranks: Ranks | None = None,
) -> tuple[Trainer, LeagueCourse]:
    """Return the trainer of a league's player, resumed from its newest checkpoint, and its course."""
    recipe = LeagueRecipe(session, league)
    state = PlayerState(session, recipe, ranks)
    outlets = Outlets(session, state)
    course = LeagueCourse(state, outlets, recipe, league, session, client, stopping, on_finished)
    return Trainer(state, outlets, course, on_finished, ranks), course
