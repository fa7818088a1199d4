"""Training one player of a league: updates as for any player, in learning periods that the league gives out."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from celery.utils.log import get_logger

from agents import Algorithm, build_algorithm, checkpoints
from agents.policies import Policy
from league.matchmaking import KINDS
from league.matchmaking.view import ModelRef
from league.state.periods import LearningPeriod
from tasks.events import STATUS, WEIGHTS, of_player
from warren.errors import ConfigurationError, LeagueError, PlayerError, PlayerStopped, PlayerUnavailable
from workers.config import teachers
from workers.config.league import LeagueConfig
from workers.leagues.client import LeagueClient
from workers.leagues.wire import period_from_wire, period_to_wire
from workers.learning.allreduce.ranks import Ranks, Stopping
from workers.learning.allreduce.ring import RanksChanged
from workers.learning.trainer import Trainer
from workers.runtime.league_paths import player_folder, policy_builder
from workers.runtime.session import Session

logger = get_logger(__name__)

OPEN_AGAIN = 1.0  # s between tries to get a learning period of a player that is paused, or trained by another
STOPPED = ("frozen", "removed")  # by a person: this player learns no more


class LeagueTrainer(Trainer):
    """A Trainer whose player is told by the league what to start from, with which hyperparameters, and what follows.

    `generation` counts the resets of the player: weights carry it, so that a learner which comes back from a crash, and
    an actor that gets new weights, know whether they were begun anew.
    """

    legal_actions = True

    def __init__(
        self,
        session: Session,
        league: LeagueConfig,
        client: LeagueClient,
        stopping: threading.Event,
        on_finished: Callable[[], None],
        ranks: Ranks | None = None,
    ) -> None:
        self.league, self.client, self._stopping = league, client, stopping
        self.player = session.config.player
        self.weights_event, self.status_event = of_player(WEIGHTS, self.player), of_player(STATUS, self.player)
        self.generation = 0
        self.period: LearningPeriod | None = None
        self.state = "on"
        self._period_end = 0
        self._led = False  # of several ranks, whether this one led, and so took up the period
        self._refused = ""  # the last complaint about hyperparameters
        folder = player_folder(session.config, self.player)
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(session, folder, on_finished, ranks)

    # What Trainer asks.

    def build(self) -> tuple[Policy, Algorithm]:
        """A policy for the league's game with the weights of this generation, and its algorithm."""
        policy = policy_builder(self.league)(self._seed("weights"))
        self.place(policy)
        settings = self.league.algorithm
        algorithm = build_algorithm(self.algorithm_name, settings, policy, self._seed("order"))
        self.teach(policy, algorithm, settings)
        self.pair(algorithm)
        return policy, algorithm

    def load_teacher(self, name: str, student: Policy) -> Policy | None:
        """Also of the league's pool, once that is sure to be back."""
        if teachers.reference(name) is None or teachers.is_kept(name, self.folder):
            return super().load_teacher(name, student)
        if self.period is None:
            return None
        network = self.league.network
        teacher = teachers.from_pool(name, lambda ref: self.session.pool.get(*ref).data, network, student)
        teachers.keep(teacher, network, name, self.folder)
        return teacher

    @property
    def algorithm_name(self) -> str:
        """The league's."""
        return str(self.league.algorithm.get("name", "ppo"))

    def stamp(self) -> dict[str, Any]:
        """With the generation."""
        return {**super().stamp(), "generation": self.generation}

    def read_stamp(self, stamp: Mapping[str, Any]) -> None:
        """Load weights as TrainedPlayer does; those of another generation have an optimizer of their own."""
        super().read_stamp(stamp)
        generation = int(stamp.get("generation", 0))
        if generation != self.generation:
            self.generation = generation
            self.policy, self.algorithm = self.build()

    def is_another(self, stamp: Mapping[str, Any]) -> bool:
        """Whether the weights are of another generation."""
        return int(stamp.get("generation", 0)) != self.generation

    def is_of_another(self, payload: Mapping[str, Any]) -> bool:
        """Whether a segment is of another generation."""
        return bool(payload.get("generation") != self.generation)

    def describe(self) -> dict[str, Any]:
        """The league's network and game."""
        return {"network": dict(self.league.network), "environment": self.league.env}

    def before_update(self) -> None:
        """Hyperparameters as they are at this point of the period."""
        assert self.period is not None
        progress = self.league.progress_in_period(self.progress.steps, self._period_end)
        try:
            self.algorithm.adjust(self.period.at(progress))
        except ConfigurationError as error:  # set by hand: a slip there is no reason to stop learning
            if str(error) != self._refused:
                self._refused = str(error)
                logger.error("player %s goes on with the hyperparameters before: %s", self.player, error)

    def after_update(self) -> None:
        """At the end of a period what the player's kind decides: it is asked for once, and holds for all ranks."""
        if self.progress.steps < self._period_end:
            return
        if self.ranks is None:
            self._end_period()
            return
        try:
            if self.leads:
                self._end_period()
        finally:  # they wait for it, whatever has come of it
            try:
                self.share()
            except RanksChanged as error:
                logger.warning("at the end of a period: %s", error)
                self.join()

    def verdict(self) -> str | None:
        """A league's player learns for as long as the league wants it to."""
        return self.state if self.state in STOPPED else None

    def close(self) -> None:
        """Write the newest checkpoint and publish the newest weights, so that a snapshot of the league has them."""
        self.settle_down()
        self.settle()
        self.say_weights()
        if self.leads and self.progress.updates and not self.broken:
            self.attempts.make("write the last checkpoint", self.checkpoint)
            self.attempts.make("publish the last weights", lambda: self.session.pool.put(self.player, *self._newest()))
        self.attempts.make("close the metrics", self._close_log)
        self.fire_status("stopped" if self.outcome is None else self.outcome["state"], always=True)
        self.leave()

    # Several ranks: the one that leads speaks with the league, and the others go on from its state.

    def joined(self) -> None:
        """Whoever leads now, and did not before, takes up the learning period. Raises Stopping where there is none."""
        if self.leads and not self._led:
            try:
                self.begin()
            except PlayerStopped as error:
                self._on_finished()
                raise Stopping(str(error)) from None
            except LeagueError as error:
                if self._stopping.is_set():
                    raise Stopping(str(error)) from None
                raise
        self._led = self.leads
        self.share()

    def told(self) -> dict[str, Any]:
        """The period that is under way."""
        period = None if self.period is None else period_to_wire(self.period, "")
        return {"period": period, "period_end": self._period_end}

    def take_told(self, told: Mapping[str, Any]) -> None:
        """It is this rank's as well."""
        if told["period"] is not None:
            self.period, _ = period_from_wire(told["period"])
            self._period_end = int(told["period_end"])
            self.teach(self.policy, self.algorithm, self.league.algorithm)

    # Learning periods.

    def begin(self) -> None:
        """Take up the learning period that the league has for the player; waits while the player is paused.

        Raises PlayerError when the player does not exist, PlayerStopped when it learns no more, LeagueError when this
        learner is to stop meanwhile.
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
                raise LeagueError(f"player {self.player!r} was to wait, and this learner to stop")

    def keep(self) -> str:
        """Tell the league how far the player is, and keep its period: "on", "paused", or why learning ends."""
        if self.period is not None:
            state = self.client.progress(self.period, self.progress.steps, self.league.lease)
            # Between the end of one period and the next, "lost" is only the old one.
            if state != self.state and state in ("on", "paused", *STOPPED):
                logger.info("player %s: %s", self.player, state)
                self.state = state
        return self.state

    def _take_up(self) -> None:
        period, kind = self.client.open_period(self.player, self.league.lease)
        self.period = period
        self.catch_up()  # only now is a league that was saved sure to be back
        self.teach(self.policy, self.algorithm, self.league.algorithm)
        every = self.league.period_steps
        self._period_end = (self.progress.steps // every + 1) * every
        unlearned = self.progress.version == 0 and self.progress.updates == 0
        if period.generation != self.generation or (unlearned and period.model is not None):
            self._start_from(period.model, period.generation, anew=period.from_initial)
        if unlearned and period.steps == 0 and KINDS[kind].begins_frozen:
            self.publish()
            self.client.snapshot(self.player, self.progress.version)

    def _start_from(self, model: ModelRef | None, generation: int, anew: bool) -> None:
        """Go on with the weights of `model`, None for fresh ones, and no moments of Adam's.

        `anew`: after a reset schedules begin again too; after an exploit they go on from where the player is.
        """
        if model is not None and self.session.pool.info(model) is None:
            if anew and not self.progress.updates:
                raise PlayerUnavailable(f"its initial model {model} is not in the pool yet")
            named, model, anew = model, self._newest_of(generation), False
            logger.warning(
                "player %s: the pool has lost %s, from which the league lets generation %d go on; going on from %s",
                self.player, named, generation, model or "the weights of this learner's checkpoint",
            )  # fmt: skip
            if model is None:
                self.generation = generation
                self._number_anew()
                return
        self.generation = generation
        self.policy, self.algorithm = self.build()
        if model is not None:
            tensors, stamp = checkpoints.weights_from_bytes(self.session.pool.get(*model).data)
            checkpoints.load_weights(self.policy, tensors, str(model))
            if model.player == self.player:  # an earlier life of its own, which the league was set back to
                self.schedules_from = int(stamp.get("schedules_from", 0))
        if anew:
            self.schedules_from = self.progress.steps
        self.set_clock()
        self._number_anew()
        logger.info("player %s begins anew from %s, generation %d", self.player, model or "fresh weights", generation)

    def _number_anew(self) -> None:
        self.progress.version += 1
        self._checkpoint_at = 0.0  # at the next update: what a crash would lose is of another generation

    def _newest_of(self, generation: int) -> ModelRef | None:
        """Return the newest weights that the pool has of this player, if they are of that generation."""
        newest = self.session.pool.newest(self.player)
        if newest is None:
            return None
        _, stamp = checkpoints.weights_from_bytes(newest.data)
        return ModelRef(self.player, newest.version) if int(stamp.get("generation", 0)) == generation else None

    def _end_period(self) -> None:
        assert self.period is not None
        number, progress = self.period.number, self.progress
        self._put()
        try:
            outcome = self.client.close_period(self.period, progress.steps, progress.version)
            logger.info("period %d at %d steps: %s %s", number, progress.steps, outcome.status, outcome.decision)
            self._take_up()
        except PlayerError as error:
            logger.info("%s", error)
            try:
                # Paused, or taken over while this learner was away: wait, and go on from what the league says.
                if self.keep() not in STOPPED:
                    self.begin()
            except PlayerStopped:  # while it waited
                self.keep()

    def _put(self) -> None:
        """What the league may take a snapshot of has to be in the pool; the league freezes it where it does."""
        if self.publisher.running:
            self.publisher.flush()  # or older weights could come after these
        self.session.pool.put(self.player, *self._newest())

    def _newest(self) -> tuple[int, int, bytes]:
        return self.publisher.stamped(self.policy.state_dict(), self.stamp())

    def _seed(self, purpose: str) -> int:
        text = f"{self.session.config.seed}/{self.player}/{purpose}/{self.generation}"
        return zlib.crc32(text.encode()) % (1 << 31)
