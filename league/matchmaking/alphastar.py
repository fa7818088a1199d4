"""The three kinds of player of AlphaStar's league, each rule as published, each constant a field.

Source: Vinyals et al. 2019, Methods and the published multi-agent pseudocode. Two slips of the pseudocode are corrected
by the paper's text: a snapshot is taken before the weights are reset, and the league exploiter's reset is drawn. A
snapshot is due at `checkpoint_max_steps`, not only beyond: a period's end that falls on it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from league.matchmaking.base import (
    KINDS,
    Branch,
    Candidates,
    Decision,
    Kind,
    Target,
    by_pfsp,
    names_of,
    only,
    unheeded_snapshots,
)
from league.matchmaking.mixture_members import played
from league.matchmaking.view import Player, View
from league.rules.plateau import has_stopped_rising
from league.rules.run_share import RunShare, Steps, amount, reached
from league.rules.win_rates import Slots
from warren.errors import MatchmakingError

T = TypeVar("T", bound=np.generic)
WIN_RATE, RETURNS = "win_rate", "returns"  # what decides that an exploiter is frozen before its most steps


def remove_monotonic_suffix(win_rates: NDArray[np.float64], players: NDArray[T]) -> NDArray[T]:
    """Return the players up to the last one that was beaten more often than the one before it; both (n,), oldest first.

    Newer snapshots are harder to beat, so win rates fall towards the end. Where they rise, the player has forgotten
    something.
    """
    for last in range(len(win_rates) - 1, 0, -1):
        if win_rates[last - 1] < win_rates[last]:
            return players[: last + 1]
    return players[:0]


@dataclass(frozen=True)
class AlphaStar(Kind):
    """Base of the three kinds: decides when to take a snapshot. Steps are decisions of the player."""

    counted_in_steps: ClassVar[tuple[str, ...]] = ("snapshot_every", "checkpoint_min_steps", "checkpoint_max_steps")

    snapshot_every: Steps | None = 0  # unused by these kinds: the least and most steps below decide
    checkpoint_min_steps: Steps = 2_000_000_000
    checkpoint_max_steps: Steps = 4_000_000_000
    checkpoint_win_rate: float = 0.7  # an early snapshot needs a lowest win rate above this
    reset_probability: float = 0.0

    def examiners(self, view: View, me: Player) -> Slots:
        """Return the players that `me` has to beat for an early snapshot."""
        return view.roster.historical

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        if not reached(steps, self.checkpoint_min_steps):
            return Decision(reason=f"{steps} steps since the last snapshot, fewer than {self.checkpoint_min_steps}")
        due, reason = self.is_due(view, me)
        if not due and reached(steps, self.checkpoint_max_steps):
            due, reason = True, f"{steps} steps since the last snapshot"
        return Decision(due, reset=due and bool(rng.random() < self.reset_probability), reason=reason)

    def is_due(self, view: View, me: Player) -> tuple[bool, str]:
        """Return (whether `me` is snapshotted before its most steps, the reason)."""
        examiners = self.examiners(view, me)
        lowest = float(view.win_rates(me.slot, examiners).min()) if len(examiners) else 0.0
        if lowest > self.checkpoint_win_rate:
            return True, f"lowest win rate {lowest:.3f} above {self.checkpoint_win_rate}"
        return False, f"lowest win rate {lowest:.3f}, not above {self.checkpoint_win_rate}"

    def main_agents(self, view: View, me: Player) -> Slots:
        """Return the main agents that learn. Raises MatchmakingError when there is none."""
        agents = view.roster.learning_of(names_of(MainAgent))
        if not len(agents):
            raise MatchmakingError(f"player {me.name!r} ({me.kind}) needs a main agent to play; add one")
        return agents

    def problems(self) -> list[str]:
        wrong = [
            f"{name}={value} is not in [0, 1]"
            for name, value in vars(self).items()
            if name.endswith(("_win_rate", "_probability", "_share")) and not 0.0 <= value <= 1.0
        ]
        wrong += unheeded_snapshots(self, "checkpoint_min_steps and checkpoint_max_steps")
        least, most = self.checkpoint_min_steps, self.checkpoint_max_steps
        given = f"checkpoint_min_steps={least}, checkpoint_max_steps={most}"
        if isinstance(least, RunShare) != isinstance(most, RunShare):
            wrong.append(f"{given}: give both as steps, or both as shares of the run")
        elif not 0 <= amount(least) <= amount(most):
            wrong.append(f"{given}: need 0 <= min <= max")
        return wrong


@KINDS.register("main_agent")
@dataclass(frozen=True)
class MainAgent(AlphaStar):
    """Half PFSP over all history, 35 % self-play, 15 % verification against exploiters and forgotten snapshots."""

    pfsp_share: float = 0.5
    verification_share: float = 0.15
    exploited_win_rate: float = 0.3  # below this against an exploiter's snapshot, exploiters are checked
    forgotten_win_rate: float = 0.7  # below this against an old snapshot of a main agent, these are checked
    too_strong_win_rate: float = 0.3  # up to this against a main agent, its snapshots are met, as a curriculum

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        historical = view.roster.historical
        pfsp_share = self.pfsp_share if len(historical) else 0.0  # before any snapshot there is only self-play
        yield Branch("pfsp", pfsp_share, lambda: by_pfsp(view, me, historical, "squared"))
        agents = self.main_agents(view, me)
        checked, rest = self.verification_share, 1.0 - pfsp_share - self.verification_share
        for slot in agents:
            agent = view.roster.by_slot[int(slot)]
            yield Branch("verification", checked / len(agents), partial(self.verification, view, me, agent))
            yield Branch("self_play", rest / len(agents), partial(self.self_play, view, me, agent))

    def verification(self, view: View, me: Player, agent: Player) -> Candidates:
        """Return exploiters if one beats `me`, else snapshots of `agent` that `me` no longer beats, else self-play."""
        exploiters = view.roster.snapshots_of_kinds(names_of(MainExploiter))
        if len(exploiters) and view.win_rates(me.slot, exploiters).min() < self.exploited_win_rate:
            return by_pfsp(view, me, exploiters, "squared")
        snapshots = view.roster.snapshots_of(agent.name)
        forgotten = remove_monotonic_suffix(view.win_rates(me.slot, snapshots), snapshots)
        if len(forgotten) and view.win_rates(me.slot, forgotten).min() < self.forgotten_win_rate:
            return by_pfsp(view, me, forgotten, "squared")
        return self.self_play(view, me, agent)

    def self_play(self, view: View, me: Player, agent: Player) -> Candidates:
        """Return `agent` itself, or its snapshots if it is too strong for `me`."""
        return agent_or_its_past(view, me, agent, self.too_strong_win_rate)

    def problems(self) -> list[str]:
        wrong = super().problems()
        if self.pfsp_share + self.verification_share > 1.0:
            wrong.append(f"pfsp_share + verification_share = {self.pfsp_share + self.verification_share}, above 1")
        return wrong


@dataclass(frozen=True)
class Exploiter(AlphaStar):
    """Base of the two kinds that exploit: frozen by win rates, as published, or once the return stops rising.

    The return is measured by looks of evaluators: `look_games` games each against the target, from both seats.
    """

    begins_frozen: ClassVar[bool] = False
    exploits: ClassVar[bool] = True
    freeze: str = WIN_RATE
    patience: int = 3  # frozen after so many looks in a row that are not above all before them
    look_games: int = 2048

    def is_due(self, view: View, me: Player) -> tuple[bool, str]:
        if self.freeze == WIN_RATE:
            return super().is_due(view, me)
        looks = view.looks(me)
        stopped = has_stopped_rising(looks, self.patience, self.look_games)
        if not looks:
            return False, "its return against its target was not measured yet"
        return stopped, f"return against its target {looks[-1]}, {'no longer' if stopped else 'perhaps still'} rising"

    @property
    def wants_looks(self) -> bool:
        return self.freeze == RETURNS

    def to_beat(self, view: View) -> Target | None:
        slots, shares = self.aims_at(view)
        return Target(slots, shares, self.look_games) if len(slots) else None

    def aims_at(self, view: View) -> tuple[Slots, NDArray[np.float64]]:
        """Return (the slots of the players to beat (n,), how often each is met (2, n), a row a seat)."""
        raise NotImplementedError

    def problems(self) -> list[str]:
        wrong = super().problems()
        if self.freeze not in (WIN_RATE, RETURNS):
            wrong.append(f"freeze={self.freeze!r} is not {WIN_RATE!r} or {RETURNS!r}")
        for name, least in (("patience", 1), ("look_games", 2)):
            if not getattr(self, name) >= least:
                wrong.append(f"{name}={getattr(self, name)} must be at least {least}")
        return wrong


@KINDS.register("main_exploiter")
@dataclass(frozen=True)
class MainExploiter(Exploiter):
    """Finds the weaknesses of the main agents; begins anew after every snapshot."""

    reset_probability: float = 1.0
    too_strong_win_rate: float = 0.1

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        agents = self.main_agents(view, me)
        for slot in agents:
            agent = view.roster.by_slot[int(slot)]
            candidates = partial(agent_or_its_past, view, me, agent, self.too_strong_win_rate)
            yield Branch("exploit", 1.0 / len(agents), candidates)

    def examiners(self, view: View, me: Player) -> Slots:
        """Return the main agents as they are now."""
        return self.main_agents(view, me)

    def aims_at(self, view: View) -> tuple[Slots, NDArray[np.float64]]:
        """Return the main agents as they are now, with equal shares."""
        agents = view.roster.learning_of(names_of(MainAgent))
        return agents, np.full((2, len(agents)), 1.0 / max(1, len(agents)))


@KINDS.register("league_exploiter")
@dataclass(frozen=True)
class LeagueExploiter(Exploiter):
    """Finds weaknesses of the whole league; begins anew after a quarter of its snapshots."""

    reset_probability: float = 0.25

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        historical = view.roster.historical
        yield Branch("pfsp", 1.0, lambda: by_pfsp(view, me, historical, "linear_capped"))

    def aims_at(self, view: View) -> tuple[Slots, NDArray[np.float64]]:
        """Return the mixture of all frozen players, by which the league is scored."""
        historical = view.roster.historical
        return historical, view.empirical_game.mixture(historical, played(view.roster, historical)).shares


def agent_or_its_past(view: View, me: Player, agent: Player, too_strong: float) -> Candidates:
    """Return `agent` if `me` has a win rate above `too_strong` against it, else its snapshots by PFSP's variance."""
    snapshots = view.roster.snapshots_of(agent.name)
    rate = view.win_rates(me.slot, np.array([agent.slot], dtype=np.intp))[0]
    if rate > too_strong or not len(snapshots):
        return only(agent.slot)
    return by_pfsp(view, me, snapshots, "variance")
