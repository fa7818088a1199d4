"""The evaluator: plays frozen players against each other until each pair is known well enough.

Cells of the payoff are played in batches; those on which the league's Nash mixture depends most come first. A cell is
played until its mean return is known to within an interval that holds at all times, or up to a bound on games. Any
number of evaluators share the work: each leases the cell that it plays. The one with `evaluator_id=0` also draws the
league's pictures and scores the league: in any game by returns against fixed references, and in games that are small
enough by the exploitability of the main agent and of the mixture.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from dataclasses import asdict
from typing import Any

import redis

import envs
from agents.checkpoints import weights_from_bytes
from agents.policies import Policy
from league.empirical_game.earned import Earned
from league.matchmaking import names_of, played, side_of
from league.matchmaking.alphastar import MainAgent
from league.matchmaking.view import ModelRef, Player, Roster
from league.redis.cell_leases import CellLeases
from league.redis.shared_earnings import SharedEarnings
from league.redis.shared_looks import SharedLooks
from league.redis.shared_returns import SharedReturns
from league.redis.shared_score import SharedScore
from league.rules.win_rates import Slots
from league.state.history import History
from tasks.events import EVALUATION
from warren.errors import BrokerError, PoolError, WarrenError
from workers.config import roles
from workers.config.league import LeagueConfig
from workers.config.run_names import run_folder
from workers.config.schema import Config
from workers.evaluation.batch_recorder import BatchRecorder
from workers.evaluation.by_settings import evaluator_of
from workers.evaluation.composition import frozen_by_kind, ranking, shares_by_kind
from workers.evaluation.duplicate_deals import SEATS
from workers.evaluation.exact_cells import ExactEvaluator
from workers.evaluation.gains import Gains
from workers.evaluation.looks import Looking
from workers.evaluation.report import Board, draw_all
from workers.evaluation.scores import UNIFORM, Score, Scores
from workers.replays.sending import ReplaySender
from workers.runtime.league_paths import league_of, store_of
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.policy_cache import FrozenPolicies
from workers.runtime.role import RoleProcess, enter, live
from workers.runtime.run_status import CLOSED
from workers.runtime.session import Session, source_name

logger = logging.getLogger(__name__)

# Errors that may pass: Redis away, a model of another network in the pool, a full disk.
TROUBLE = (redis.RedisError, WarrenError, OSError)
IDLE = 0.5  # s between checks while every cell is known well enough
AGAIN_AFTER = 1.0  # s after which work goes on when a server was away
FIRST_PICTURES, PICTURES_EVERY = 20.0, 60.0  # s
PICTURES_REST = 20.0  # least time until the next pictures, per time of drawing: a busy machine has other work


class EvaluatorRole(RoleProcess):
    """Plays batches of games and, now and then, scores the league."""

    over_at = (CLOSED,)  # it scores the league once the others have ended

    def __init__(
        self, config: Config, session: Session, league: LeagueConfig, stopping: threading.Event | None = None
    ) -> None:
        super().__init__(stopping)
        self.config, self.session, self.league = config, session, league
        self.store = store_of(session)
        self.returns = SharedReturns(session.redis, self.store.prefix)
        self._policies = LeaguePolicies(league)
        self._frozen = FrozenPolicies(session.pool, self._policies.frozen)
        self._view, self._roster = self.store.view(), Roster()
        # Two evaluators that played the same games would count them twice.
        seed = seed_of(source_name(config.evaluator_id))
        games = envs.make_two_player(league.env, league.evaluation_games, seed, **league.env_kwargs)
        self.claims = CellLeases(session.redis, self.store.prefix, source_name(config.evaluator_id), league.lease)
        recorder = BatchRecorder(
            league,
            ReplaySender(session.redis, session.topology.key_prefix),
            source_name(config.evaluator_id, "evaluator"),
            lambda slot: self._roster.by_slot[slot],
            self._policy_at,
        )
        self._cells = len(games.teams) == SEATS and not league.has_roles  # whether frozen players have a mixture
        self.evaluator = evaluator_of(league, games, self.returns, self._policy_at, seed, self.claims, recorder)
        self.returns.refresh()  # raises if they are of another source
        # The game is written out here, once: later that would count as work, after which an evaluator rests.
        form = self.evaluator.form if isinstance(self.evaluator, ExactEvaluator) else None
        self.scores = Scores(league, run_folder(config), seed, form) if not config.evaluator_id else None
        looks = SharedLooks(session.redis, self.store.prefix)
        self._looking = Looking(self.evaluator, looks, self._newest, league.period_steps)
        self._score = SharedScore(session.redis, self.store.prefix)
        known = (self._score.get() or {}).get("gains")
        self._gains = Gains(self.evaluator, league.cell_error, league.cell_most, known)
        self._looked = False  # in the last step, at a player that learns, or at the gain of a response
        updates = {name: player.updates for name, player in league.players.items()}
        self._earned = Earned(updates, league.earned_share)
        self._score_at = 0.0
        self._pictures_at = time.monotonic() + FIRST_PICTURES
        self._history = History()
        self._board: Board | None = None

    def work(self, name: str) -> int:
        """Work until told to stop, then score the league, so that the run ends with a score of its last state."""
        share, stopping = self.league.evaluation_share, self.stopping
        while not stopping.is_set():
            try:
                if self.scores is not None and time.monotonic() >= self._pictures_at:
                    self.draw()
                started = time.monotonic()
                worked = self.step()
                busy = time.monotonic() - started
                stopping.wait(busy * (1.0 / share - 1.0) if worked and share > 0.0 else IDLE)
            except TROUBLE as error:
                logger.warning("cannot evaluate for a moment: %s", error)
                stopping.wait(AGAIN_AFTER)
        if self.scores is not None:
            try:
                self.score()
                self.draw()
            except TROUBLE as error:
                logger.warning("no last score: %s", error)
        try:
            self.claims.release()
        except redis.RedisError as error:  # its lease runs out
            logger.warning("the cell that was being played was not given back: %s", error)
        return 0

    def step(self) -> bool:
        """Play a batch of the most useful cell, look at a learning player, or measure the gain of a best response.

        Return whether games were played. Evaluator 0 alone looks and measures gains, in every other step at most, and
        scores the league when that is due.
        """
        slots = self._check()
        if self.scores is not None and self.league.earned_share and len(slots):
            self._share_out(slots)
        if self.scores is not None and time.monotonic() >= self._score_at:
            self._score_at = time.monotonic() + self.league.evaluation_every  # even if it fails: games go on
            self.score()
        if self.league.evaluation_share <= 0.0:
            return False
        self._looked = self.scores is not None and not self._looked  # even if it fails
        self._looked = self._looked and (self._looking.look(self._view, self._steps) or self._gains.step(self._view))
        return self._looked or self.evaluator.step(slots, played(self._roster, slots))

    def score(self) -> Score:
        """Score the league as it is now, write the score to the file and fire the evaluation event."""
        assert self.scores is not None
        slots = self._check()
        main = next(iter(self._main_agents()), None)
        newest = None if main is None else self._newest(main)
        policy = None if newest is None else newest[0]
        playing = played(self._roster, slots)
        shares = self.evaluator.mixture(slots, playing) if len(slots) and self._cells else None
        models = [self._model_at(int(slot)) for slot in slots]
        mixture = None if shares is None else self.scores.of_mixture(models, self._frozen.__getitem__, shares)
        gain = None if shares is None else self.evaluator.gain_within(slots, shares, playing)
        references = self._references(self._main_agents() if self.league.has_roles else self._main_agents()[:1])
        learning = [self._roster.by_slot[int(slot)] for slot in self._roster.learning]
        frozen = [self._roster.by_slot[int(slot)] for slot in slots]
        composed: dict[str, Any] = {"gains": {name: asdict(gain) for name, gain in self._gains.of(self._view).items()}}
        if shares is not None:
            composed["frozen_by_kind"] = frozen_by_kind(frozen)
            composed["shares_by_kind"] = shares_by_kind(frozen, shares)
            composed["alpha_rank"] = ranking(frozen, shares, self.returns)
        score = self.scores.record(
            {player.name: self._steps(player) for player in learning},
            len(slots),
            int(self.returns.total_games),
            self.scores.of_policy(policy) if self._cells else None,
            mixture,
            references,
            gain,
            **composed,
        )
        logger.info("%s", score)
        self._score.put(asdict(score))
        try:
            self.session.events.fire(EVALUATION, asdict(score))
        except BrokerError as error:
            logger.warning("%s", error)
        return score

    def _references(self, mains: list[Player]) -> dict[str, float]:
        """Return main agents' gains against the league's references, by reference, and by agent if it takes a side."""
        assert self.scores is not None
        found = {}
        for main in mains:
            newest, side = self._newest(main), side_of(main)
            if newest is None:
                continue
            for name in self.league.references:
                if name == UNIFORM or (name in self._roster and self._roster[name].frozen):
                    other = None if name == UNIFORM else self._policy_at(self._roster[name].slot)
                    gained = self.scores.against(newest[0], other, side)
                    found[name if side is None else f"{name} ({main.name})"] = gained
        return found

    def draw(self) -> None:
        """Draw the league's pictures, in the run folder and in TensorBoard."""
        assert self.scores is not None
        folder, started = run_folder(self.config), time.monotonic()
        self._history.follow(self.store)
        self._board = self._board or Board(folder)
        try:
            draw_all(folder, self._history, returns=self.returns, uniform=self.scores.uniform, board=self._board)
        except OSError as error:  # a full disk, say: playing on is worth more than a picture
            logger.warning("no pictures: %s", error)
        now = time.monotonic()
        self._pictures_at = now + max(PICTURES_EVERY, PICTURES_REST * (now - started))

    def _share_out(self, slots: Slots) -> None:
        parents = [self._roster.by_slot[int(slot)].parent for slot in slots]
        if self._earned.follow(slots, parents, self.returns, played(self._roster, slots)):
            SharedEarnings(self.session.redis, self.store.prefix).put(self._earned.shares)

    # The league as this process sees it.

    def _check(self) -> Slots:
        self._view = self.store.view()
        self._roster = self._view.roster
        self.returns.refresh()
        return self._roster.historical

    def _main_agents(self) -> list[Player]:
        slots = self._roster.learning_of(names_of(MainAgent))
        if not len(slots):
            slots = self._roster.learning
        return [self._roster.by_slot[int(slot)] for slot in slots]

    def _policy_at(self, slot: int) -> Policy:
        player = self._roster.by_slot[slot]
        if player.frozen:
            return self._frozen[self._model_at(slot)]
        newest = self._newest(player)
        if newest is None:
            raise PoolError(f"player {player.name!r} is to be played and has published no weights; is its learner up?")
        return newest[0]

    def _model_at(self, slot: int) -> ModelRef:
        model = self._roster.by_slot[slot].model
        assert model is not None  # a frozen player has one
        return model

    def _newest(self, player: Player) -> tuple[Policy, dict[str, Any]] | None:
        model = self.session.pool.newest(player.name)
        if model is None:
            return None
        tensors, stamp = weights_from_bytes(model.data)
        return self._policies.loaded(player.name, tensors, stamp, player.name), stamp

    def _steps(self, player: Player) -> int:
        return self.store.progress_of(player.name).steps


def seed_of(source: str) -> int:
    """Return a seed for the evaluator process named `source`, 0 to 2**31 - 1; others have other seeds."""
    return zlib.crc32(source.encode()) % (1 << 31)


def run(config: Config) -> int:
    """Evaluate until told to stop, or until the run is over; return exit status 0."""
    session = enter(config, roles.EVALUATOR, torch_threads=1)
    stopping = session.stopped_by_signals()
    run_folder(config).mkdir(parents=True, exist_ok=True)
    return live(
        session, roles.EVALUATOR, lambda config: EvaluatorRole(config, session, league_of(config), stopping), stopping
    )
