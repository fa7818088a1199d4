"""Learning periods: the player that a learner trains, the weights and hyperparameters to begin with, and the outcome.

    period = periods.open("main", learner="learner-0", lease=60.0)
    ... train from period.model with period.at(progress); now and then: periods.progress(period, steps, lease=60.0)
    outcome = periods.close(period, steps, version)     # snapshot, reset or exploit, as the player's kind decides

A period is leased to its learner. A learner that dies leaves it open; the next learner continues the same period.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from league.matchmaking import Decision, facing, kind_of
from league.matchmaking.view import ModelRef
from league.rules.hyperparameters import Hyperparameters
from league.state.commands import ClosePeriod, OpenPeriod, TellProgress
from league.state.fields import milliseconds, to_json
from league.state.league import League
from league.state.records import model_of
from warren.errors import PlayerError, PlayerStopped, PlayerUnavailable


@dataclass(frozen=True)
class LearningPeriod:
    """The task of a learner. `model` is the model to start from; None: the learner makes initial weights.

    `from_initial`: the player begins, or begins anew after a reset; else it goes on, after an exploit with the weights
    of another player.
    """

    player: str
    number: int  # from 1
    learner: str
    model: ModelRef | None
    steps: int  # environment steps of the player so far
    generation: int
    rules: Mapping[str, Any]
    hyperparameters: Mapping[str, Any]  # in the league's stored form; `at` returns those to train with
    deadline: int  # ms of Unix time
    from_initial: bool = False
    begun_at: int = 0  # steps of the player at the end of its last period

    def at(self, progress: float = 0.0) -> dict[str, Any]:
        """Return the hyperparameters to train with, `progress` in [0, 1] through the period."""
        return Hyperparameters(self.rules).at(self.hyperparameters, self.number - 1, progress)


@dataclass(frozen=True)
class Outcome:
    """The end of a period: `status` is "closed", "reset", "exploited", or "again" if it had been closed before.

    `decision` is what happened; for "again" the first decision is returned and nothing is drawn anew.
    `start` is the model from which the player goes on; None: from its initial weights.
    """

    status: str
    start: ModelRef | None
    decision: Decision


class Periods:
    """The learning periods of a league, in memory or in Redis."""

    def __init__(self, league: League) -> None:
        self._league = league

    def open(self, player: str, learner: str, lease: float) -> LearningPeriod:
        """Open a period to work on: a new one, or the open one of this learner or of a learner that went silent.

        Raises PlayerError if the player does not exist, PlayerStopped if it no longer learns (frozen, removed),
        PlayerUnavailable while it is paused or another learner holds its period.
        """
        answer = self._league.execute(OpenPeriod(player, learner, milliseconds(lease)))
        if answer[0] == "unknown":
            self._league.progress_of(player)
        if answer[0] == "busy":
            raise PlayerUnavailable(
                f"player {player!r} is being trained by {answer[1]!r}; wait until its lease is over"
            )
        if answer[0] != "opened":
            refusal = PlayerUnavailable if answer[0] == "paused" else PlayerStopped
            raise refusal(f"player {player!r} is {answer[0]} and does not learn; train another, or resume it")
        number, start, initial, rules, hyperparameters, steps, generation, deadline, begun_at = answer[1:]
        return LearningPeriod(
            player=player,
            number=int(number),
            learner=learner,
            model=model_of(start or initial),
            steps=int(steps),
            generation=int(generation),
            rules=json.loads(rules),
            hyperparameters=json.loads(hyperparameters),
            deadline=int(deadline),
            from_initial=not start,
            begun_at=int(begun_at),
        )

    def progress(self, period: LearningPeriod, steps: int, lease: float) -> str:
        """Report the player's environment steps in all and extend the lease; return "on", "paused", or why to stop.

        While "paused" the period is kept and the player has to wait. Reasons to stop: "lost" (another learner has the
        period), "frozen", "removed".
        """
        told = TellProgress(period.player, period.number, period.learner, steps, milliseconds(lease))
        return self._league.execute(told)[0]

    def close(
        self,
        period: LearningPeriod,
        steps: int,
        version: int,
        by: str = "",
        weights_of: Callable[[str], ModelRef | None] = lambda player: None,
        keep: Callable[[ModelRef], object] = lambda model: None,
        run: float | None = None,
        snapshots: Sequence[ModelRef] = (),
    ) -> Outcome:
        """End a period at `steps` with the weights `version`, which the pool should hold. Safe to repeat.

        `snapshots` are the models that join the league if a snapshot is taken, such as averages of the weights; by
        default the weights alone. `keep` freezes them before the league names them. `weights_of` freezes and names the
        newest weights of a learning player, for a player that takes them over. If it returns None, the weights at the
        end of that player's last closed period are taken; if there are none, the player goes on as it is. `run`: steps
        that the player makes in the whole run at its mean pace so far, for thresholds that are shares of it.

        Raises PlayerError if another learner has taken the period over, or the player was frozen or removed.
        """
        league, name, model = self._league, period.player, ModelRef(period.player, version)
        view, progress = league.view(name), league.progress_of(name)
        me, rng = view.roster[name], league.rng
        asked_again = progress.period == period.number and not progress.is_open
        decision = Decision()
        if not asked_again:
            kind, since = kind_of(me.kind, me.config).within(run), steps - progress.snapshot_steps
            decision = kind.period_end(facing(view, me), me, since, rng)
        source = source_model = mutated = ""
        if decision.exploit is not None:
            stronger = view.roster[decision.exploit]
            source_model = str(weights_of(stronger.name) or stronger.model or league.progress_of(stronger.name).start)
            source = stronger.name if source_model else ""
            by_rule = Hyperparameters(me.rules)
            copied = by_rule.exploited(Hyperparameters(stronger.rules), stronger.hyperparameters, rng)
            mutated = to_json(copied)
        snapshots = snapshots or [model]
        for taken in snapshots if decision.snapshot else ():
            keep(taken)
        answer = league.execute(
            ClosePeriod(
                *(name, period.number, period.learner, steps, str(model)),
                *(int(decision.snapshot), int(decision.reset)),
                *(source, source_model, mutated, decision.reason, by or period.learner),
                tuple(map(str, snapshots)) if decision.snapshot else (),
            )
        )
        if answer[0] in ("frozen", "removed"):
            raise PlayerError(f"player {name!r} was {answer[0]} meanwhile, and what was learned since is not taken in")
        if answer[0] == "lost":
            raise PlayerError(f"period {period.number} of {name!r} is no longer {period.learner!r}'s; open a new one")
        status, start, how, snapshot, source, reason = answer
        happened = Decision(snapshot == "1", how == "reset", source or None, reason)
        return Outcome(status, model_of(start) or (me.initial if how == "reset" else None), happened)
