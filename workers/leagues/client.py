"""The client of the league's services, for actors and learners; it repeats a call until it is answered.

    league = LeagueClient(session, "actor-0", stopping)
    match, *models = league.request("main", 60.0)
    league.report(match, "wwdl")

Each service is idempotent: a match keeps the id of its first request, a result counts once. So a league worker that
dies, or a broker or Redis that restarts, costs callers only time.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any

from celery.utils.log import get_logger

from league.matchmaking.view import ModelRef
from league.state.league_state import Match
from league.state.periods import LearningPeriod, Outcome
from tasks.solver import Solver
from warren import errors
from warren.errors import BrokerError, CallError, LeagueAbsent, LeagueError, RemoteFailure, WarrenError
from workers.leagues.wire import Invitation, invitation_from_wire, outcome_from_wire, period_from_wire
from workers.runtime.session import Session

logger = get_logger(__name__)

DEADLINE = 10.0  # s for one answer at most
FIRST_DEADLINE = 1.0  # s for the first try, doubled for each further one: another league worker may be quicker
AGAIN_AFTER = 0.5  # s between tries
TRANSIENT = ("redis.", "kombu.", "amqp.", "ConnectionError", "TimeoutError", "OperationalError")


class LeagueClient:
    """Calls of the league's services for `holder`, the process that holds the matches; each is tried for `patience` s.

    They raise what the league raised (PlayerError, MatchmakingError, LeagueError, ConfigurationError), and LeagueError
    when nobody answered or `stopping` was set meanwhile.
    """

    def __init__(self, session: Session, holder: str, stopping: threading.Event, patience: float = 120.0) -> None:
        self.holder, self._stopping, self._patience = holder, stopping, patience
        self._solver = Solver(session.app, session.topology)

    def request(self, player: str, lease: float, opponents: int = 1) -> Invitation:
        """Return the next match of `player` against `opponents` opponents, leased for `lease` s."""
        asked = player, self.holder, lease, secrets.token_hex(8), *([opponents] if opponents > 1 else [])
        return invitation_from_wire(self._ask("league.request", *asked))

    def report(self, match: Match, outcomes: str) -> tuple[str, str]:
        """Report the outcomes of a match; return "counted", "aborted" or "refused", and why."""
        status, reason = self._ask("league.report", match.id, outcomes, self.holder)
        if reason == "duplicate":  # only this process reports it: an earlier try was counted, its answer late or lost
            return "counted", ""
        return status, reason

    def abort(self, match: Match) -> None:
        """Give back a match without a finished game."""
        self._ask("league.abort", match.id, self.holder)

    def extend(self, matches: Sequence[str], lease: float) -> list[bool]:
        """Extend the leases of open matches to `lease` s from now; return which of them are still open."""
        still: list[bool] = self._ask("league.extend", list(matches), lease)
        return still

    def learning(self) -> list[str]:
        """Return the players to play for: those that learn and are not paused."""
        names: list[str] = self._ask("league.learning")
        return names

    def open_period(self, player: str, lease: float) -> tuple[LearningPeriod, str]:
        """Return (the learning period of `player` to work on, the player's kind)."""
        return period_from_wire(self._ask("league.open_period", player, self.holder, lease))

    def progress(self, period: LearningPeriod, steps: int, lease: float) -> str:
        """Report the player's steps and extend the lease of its period; return "on", "paused", or why to stop."""
        answer: str = self._ask("league.progress", period.player, period.number, self.holder, steps, lease)
        return answer

    def close_period(
        self,
        period: LearningPeriod,
        steps: int,
        version: int,
        run: float | None = None,
        snapshots: Sequence[ModelRef] = (),
    ) -> Outcome:
        """End a period; return what the player's kind decided. `run`, `snapshots`: see Periods.close."""
        names = list(map(str, snapshots))
        return outcome_from_wire(
            self._ask("league.close_period", period.player, period.number, self.holder, steps, version, run, names)
        )

    def snapshot(self, player: str, version: int) -> str:
        """Add a frozen copy of a learning player; return its name."""
        name: str = self._ask("league.snapshot", player, version, self.holder)
        return name

    def _ask(self, service: str, *arguments: Any) -> Any:
        until, problem, deadline = time.monotonic() + self._patience, "", FIRST_DEADLINE
        while True:
            try:
                return self._solver.call(service, *arguments, deadline=deadline)
            except RemoteFailure as error:
                refusal = refused(error)
                if refusal is not None and not isinstance(refusal, LeagueAbsent):
                    raise refusal from None
                if refusal is None and not error.kind.startswith(TRANSIENT):
                    raise
                problem = f"{error.kind}: {error.remote_message}"
            except (CallError, BrokerError) as error:
                problem = str(error)
            if time.monotonic() > until or self._stopping.wait(AGAIN_AFTER):
                raise LeagueError(f"the league did not answer {service} ({problem}); is python -m workers.league up?")
            logger.log(
                logging.INFO if deadline == FIRST_DEADLINE else logging.WARNING, "asking %s again: %s", service, problem
            )
            deadline = min(2.0 * deadline, DEADLINE)


def refused(error: RemoteFailure) -> WarrenError | None:
    """Return the LeagueError or ConfigurationError that the service raised; None for any other error."""
    module, _, name = error.kind.rpartition(".")
    kind = getattr(errors, name, None) if module == "warren.errors" else None
    if not isinstance(kind, type) or not issubclass(kind, (LeagueError, errors.ConfigurationError)):
        return None
    made: WarrenError = kind(error.remote_message)
    return made
