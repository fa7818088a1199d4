"""A league worker: it issues matches, counts results, and gives out learning periods.

It holds no state: any number of workers serve one league, which is in Redis (league/). The worker with `league_id=0`
also keeps the league's folder: it saves models and the event stream there, and brings back spilled models. When Redis
holds no league, it restores the one in the folder, or in `restore`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from agents.checkpoints import weights_to_bytes
from league.matchmaking.view import NEWEST, ModelRef
from league.models.keeper import Keeper
from league.models.pool import LEAGUE, Pool
from league.models.saved_stream import holds_league
from league.models.snapshots import Snapshots
from league.models.unsaved import Unsaved
from league.redis.store import Store, check_outcomes
from league.rules.settings import Settings
from league.state.league_state import Match
from league.state.periods import LearningPeriod, Periods
from tasks.service import Worker, service
from tasks.worker.pool import stop_worker
from tasks.worker.server import Serving
from warren.errors import LeagueError, PoolError, WarrenError
from workers.config import initial_weights, roles
from workers.config.league import LeagueConfig
from workers.config.run_names import run_folder
from workers.config.schema import Config
from workers.leagues.wire import Invitation, invitation_to_wire, outcome_to_wire, period_to_wire
from workers.replays.folder import FOLDER as REPLAYS
from workers.replays.sending import ReplayKeeper, write_the_rest
from workers.runtime.league_paths import league_folder, league_of, store_of
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.role import RoleProcess, enter, live
from workers.runtime.run_status import CLOSED
from workers.runtime.session import Session, event_rate

logger = logging.getLogger(__name__)

POLL_EVERY = 0.2  # s between checks of whether the league is there
AGAIN_AFTER = 1.0  # s until the keeper runs again after a failure
VIEW_AGE = 0.1  # s for which a view of the league may serve further requests of the same player


class LeagueService(Worker):
    """The league's services. The busiest handle many calls at once, with few round trips to Redis."""

    role = "league"

    def __init__(self, store: Store, pool: Pool) -> None:
        super().__init__()
        self.store, self.pool, self.periods = store, pool, Periods(store)

    @service(batch=64)
    def request(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Issue matches: (player, holder, lease in s, id of the match) -> the match, and the models of its opponents.

        A fifth argument is the number of opponents, if there are more than one.
        """
        answers: list[Any] = [None] * len(calls)
        try:
            for holder, lease, *more in {(*call[1:3], *call[4:]) for call in calls}:
                alike = [index for index, call in enumerate(calls) if (*call[1:3], *call[4:]) == (holder, lease, *more)]
                homes, ids = [calls[index][0] for index in alike], [calls[index][3] for index in alike]
                for index, match in zip(alike, self.store.request_many(homes, holder, lease, ids, *more), strict=True):
                    answers[index] = match
        except LeagueError:  # one request is at fault: make each by itself, under its own id
            answers = [self._request(*call) for call in calls]
        return [answer if isinstance(answer, Exception) else self._invite(answer) for answer in answers]

    def _request(self, player: str, holder: str, lease: float, match: str, opponents: int = 1) -> Any:
        try:
            return self.store.request(player, holder, lease, match, opponents)
        except LeagueError as error:
            return error

    def _invite(self, match: Match) -> dict[str, Any]:
        frozen = [name for name, _, is_frozen in match.standing[1:] if is_frozen]
        roster = self.store.last_roster
        if any(name not in roster or not roster[name].frozen for name in frozen):  # frozen after that view
            roster = self.store.view().roster
        model, *others = (roster[name].model if is_frozen else None for name, _, is_frozen in match.standing[1:])
        return invitation_to_wire(Invitation(match, model, tuple(others)))

    @service(batch=256)
    def report(self, calls: Sequence[tuple[str, str, str]]) -> list[Any]:
        """Count results: (id of the match, outcomes, reporter) -> [status, reason]."""
        answers: list[Any] = []
        for match, outcomes, _ in calls:
            try:
                check_outcomes(match, outcomes)
                answers.append(None)
            except LeagueError as error:
                answers.append(error)
        valid = [index for index, answer in enumerate(answers) if answer is None]
        for by in {calls[index][2] for index in valid}:
            alike = [index for index in valid if calls[index][2] == by]
            reports = self.store.report_many([calls[index][:2] for index in alike], by)
            for index, found in zip(alike, reports, strict=True):
                answers[index] = list(found)
        if logger.isEnabledFor(logging.DEBUG):
            for (match, *_), answer in zip(calls, answers, strict=True):
                logger.debug("match %s: %s", match, answer, extra={"match": match})
        return answers

    @service
    def abort(self, match: str, by: str) -> list[str]:
        """End a match without a result."""
        return list(self.store.abort(match, by=by))

    @service
    def extend(self, matches: list[str], lease: float) -> list[bool]:
        """Extend the leases of matches; return which of them are still open."""
        return [self.store.extend(match, lease) for match in matches]

    @service(batch=256)
    def learning(self, calls: Sequence[Any]) -> list[Any]:
        """Name the players that learn and are not paused: () -> names."""
        roster = self.store.view().roster
        players = [roster.by_slot[int(slot)] for slot in roster.learning]
        return [[player.name for player in players if not player.paused]] * len(calls)

    @service
    def open_period(self, player: str, learner: str, lease: float) -> dict[str, Any]:
        """Open the learning period of `player`; return it and the player's kind."""
        period = self.periods.open(player, learner, lease)
        return period_to_wire(period, self.store.player(player).kind)

    @service
    def progress(self, player: str, number: int, learner: str, steps: int, lease: float) -> str:
        """Extend the lease of a learning period; return the player's status."""
        return self.periods.progress(_period(player, number, learner), steps, lease)

    @service
    def close_period(
        self,
        player: str,
        number: int,
        learner: str,
        steps: int,
        version: int,
        run: float | None = None,
        snapshots: Sequence[str] = (),
    ) -> dict[str, Any]:
        """End a learning period with weights that are in the pool; return what the player's kind decided.

        If they become a snapshot, the weights, or the models named by `snapshots`, are frozen. If the player takes over
        another player's weights, those are frozen.
        """
        period, taken = _period(player, number, learner), [ModelRef.parse(name) for name in snapshots]
        made = self.periods.close(
            period, steps, version, weights_of=self._newest, keep=self._keep, run=run, snapshots=taken
        )
        return outcome_to_wire(made)

    @service
    def snapshot(self, player: str, version: int, by: str) -> str:
        """Add a frozen copy of a learning player, whose weights are in the pool; return its name."""
        self._keep(ModelRef(player, version))
        return self.store.snapshot(player, version, by).name

    def _newest(self, player: str) -> ModelRef | None:
        try:
            return self.pool.freeze(player, kept_by=LEAGUE)
        except PoolError:
            return None

    def _keep(self, model: ModelRef) -> None:
        self.pool.freeze(*model, kept_by=LEAGUE)


def _period(player: str, number: int, learner: str) -> LearningPeriod:
    """Return a period with only the fields that identify it; the league knows the others."""
    return LearningPeriod(player, number, learner, None, 0, 0, {}, {}, 0)


def begin(store: Store, pool: Pool, league: LeagueConfig, restore: Path | None) -> None:
    """Create the league with its players, or join the existing one; restore a saved one if Redis has none.

    Other workers serve it only once it is complete: see `wait_for_league`.
    """
    if restore is not None and not store.exists():
        state = Snapshots(restore, store, pool).restore(ready=False)
        logger.info("%s: %d players restored", restore, len(state.players))
    store.create(Settings(**league.settings), ready=False)
    there = store.view().roster
    for name, player in league.players.items():
        if name in there:
            continue
        initial = None if player.initial is None else _initial(pool, league, name, player.initial)
        rules = player.hyperparameters
        if store.add_player(name, player.kind, player.config, initial=initial, rules=rules, by="league"):
            logger.info("player %s joins as %s", name, player.kind)
    store.open_up()


def _initial(pool: Pool, league: LeagueConfig, player: str, initial: str) -> ModelRef:
    """Return the pool's model that the setting `initial` names; put a checkpoint into the pool under a new name."""
    model = initial_weights.model_of(initial, league.players)
    if model is None:
        policy, model = LeaguePolicies(league).new(player), ModelRef(f"{player}-initial", 0)
        initial_weights.load(initial, policy, player)
        stamp = {"player": model.player, "version": model.version, "step": 0, "network": league.network_of(player)}
        pool.put(*model, 0, weights_to_bytes(policy, stamp))
    if model.version == NEWEST:
        return model
    with suppress(PoolError):  # the league may still have to make the model; the player's learner waits for it
        pool.freeze(*model, kept_by=LEAGUE)
    return model


def saved_league(config: Config) -> Path | None:
    """Return the folder of the league to resume: the run's own when it holds one, else `restore`, or None.

    The run's own comes first: a resumed run that began with `restore` continues from where it was stopped.
    """
    folder = league_folder(config)
    if holds_league(folder):
        return folder
    return None if config.restore is None else Path(config.restore)


def take_over_earlier(config: Config, session: Session, league: LeagueConfig) -> None:
    """Save what killed earlier runs of this folder have left in Redis: records of matches, and the league."""
    unsaved, own = Unsaved(league_folder(config)), session.topology.key_prefix
    for earlier in unsaved.prefixes:
        if earlier != own:
            write_the_rest(session.redis, earlier, run_folder(config) / REPLAYS, league.replay_bytes)
    unsaved.begin(session.redis, own)


def keep(keeper: Keeper, stopping: threading.Event) -> None:
    """Run the keeper through outages of Redis and full disks; at the end it takes a snapshot."""
    while True:
        ends = stopping.is_set()  # it only takes the last snapshot, which a stop amid a failure must not skip
        try:
            keeper.run(stopping)
            return
        except (redis.RedisError, OSError, WarrenError) as error:
            logger.warning("could not keep the league's folder, trying again: %s", error)
        except Exception:  # if this thread ended, nothing would be saved any more, and nobody would notice
            logger.exception("could not keep the league's folder, trying again")
        if ends:
            return
        stopping.wait(AGAIN_AFTER)


def wait_for_league(store: Store) -> None:
    """Wait until another worker has created or restored the league, with all of its players."""
    said = False
    while not store.is_ready():
        if not said:
            logger.info("waiting for the league, which the worker with league_id=0 creates")
            said = True
        time.sleep(POLL_EVERY)


class LeagueRole(RoleProcess):
    """A league worker: the league's services and, in the one with `league_id=0`, the keepers of its folder."""

    over_at = (CLOSED,)  # actors and learners call it until they end

    def __init__(self, config: Config, session: Session) -> None:
        super().__init__()
        self.session, self.store, league = session, store_of(session, VIEW_AGE), league_of(config)
        self._keepers: list[threading.Thread] = []
        if config.league_id != 0:
            wait_for_league(self.store)
            return
        take_over_earlier(config, session, league)
        begin(self.store, session.pool, league, saved_league(config))
        own = Keeper(
            self.store, session.pool, league_folder(config), league.memory_bound, league.snapshot_every, league.history
        )
        self._keepers.append(threading.Thread(target=keep, args=(own, self.stopping), name="keeper"))
        if league.records:
            folder = run_folder(config) / REPLAYS
            replays = ReplayKeeper(session.redis, session.topology.key_prefix, folder, league.replay_bytes)
            self._keepers.append(threading.Thread(target=replays.run, args=(self.stopping,), name="replays"))

    def work(self, name: str) -> int:
        session, service = self.session, LeagueService(self.store, self.session.pool)
        serving = Serving(session.app, session.topology, [service], name, event_rate=event_rate(session.config))
        return serving.run(on_ready=self._keep)

    def stop(self) -> None:
        stop_worker()  # the keepers go on until serving has ended, then take a last snapshot

    def leave(self) -> None:
        super().leave()
        for keeper in self._keepers:
            if keeper.ident is not None:
                keeper.join()

    def _keep(self) -> None:
        for keeper in self._keepers:
            keeper.start()


def run(config: Config) -> int:
    """Serve until told to stop, or until the run is over; return the exit status."""
    session = enter(config, roles.LEAGUE)
    return live(session, roles.LEAGUE, lambda config: LeagueRole(config, session))
