"""The three kinds of player of AlphaStar's league, each rule as published, each constant a field.

Source: Vinyals et al. 2019, Methods and the published multi-agent pseudocode. Two slips of the pseudocode are mended as
the paper's text says: a snapshot is taken before the weights are reset, and the league exploiter's reset is drawn. A
snapshot is due at `checkpoint_max_steps`, not beyond: where periods divide it, the end that meets it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from league.matchmaking.base import KINDS, Branch, Candidates, Decision, Kind, by_pfsp, names_of, only
from league.matchmaking.view import Player, View
from league.rules.win_rates import Slots
from warren.errors import MatchmakingError

T = TypeVar("T", bound=np.generic)


def remove_monotonic_suffix(win_rates: NDArray[np.float64], players: NDArray[T]) -> NDArray[T]:
    """Return the players up to the last one that was beaten more often than the one before it; both (n,), oldest first.

    Newer snapshots are harder, so win rates fall towards the end; only where they do not was something forgotten.
    """
    for last in range(len(win_rates) - 1, 0, -1):
        if win_rates[last - 1] < win_rates[last]:
            return players[: last + 1]
    return players[:0]


@dataclass(frozen=True)
class AlphaStar(Kind):
    """Base of the three kinds: when to take a snapshot. Steps are environment steps of the player."""

    snapshot_every: int | None = 0  # not for these kinds: the least and most steps below decide
    checkpoint_min_steps: int = 2_000_000_000
    checkpoint_max_steps: int = 4_000_000_000
    checkpoint_win_rate: float = 0.7  # the lowest win rate must exceed this to be snapshotted early
    reset_probability: float = 0.0

    def examiners(self, view: View, me: Player) -> Slots:
        """Return the players that `me` has to beat for an early snapshot."""
        return view.roster.historical

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        if steps < self.checkpoint_min_steps:
            return Decision(reason=f"{steps} steps since the last snapshot, fewer than {self.checkpoint_min_steps}")
        examiners = self.examiners(view, me)
        lowest = float(view.win_rates(me.slot, examiners).min()) if len(examiners) else 0.0
        if lowest > self.checkpoint_win_rate:
            reason = f"lowest win rate {lowest:.3f} above {self.checkpoint_win_rate}"
        elif steps >= self.checkpoint_max_steps:
            reason = f"{steps} steps since the last snapshot"
        else:
            return Decision(reason=f"lowest win rate {lowest:.3f}, not above {self.checkpoint_win_rate}")
        return Decision(snapshot=True, reset=bool(rng.random() < self.reset_probability), reason=reason)

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
        if self.snapshot_every != 0:
            wrong.append(
                f"snapshot_every={self.snapshot_every} is not heeded by this kind; set checkpoint_min_steps and "
                "checkpoint_max_steps instead"
            )
        if not 0 <= self.checkpoint_min_steps <= self.checkpoint_max_steps:
            wrong.append(
                f"checkpoint_min_steps={self.checkpoint_min_steps}, checkpoint_max_steps={self.checkpoint_max_steps}: "
                "need 0 <= min <= max"
            )
        return wrong


@KINDS.register("main_agent")
@dataclass(frozen=True)
class MainAgent(AlphaStar):
    """Half PFSP over all history, 35 % self-play, 15 % verification against exploiters and what it forgot."""

    pfsp_share: float = 0.5
    verification_share: float = 0.15
    exploited_win_rate: float = 0.3  # below this against an exploiter's snapshot: those first
    forgotten_win_rate: float = 0.7  # below this against an old snapshot of a main agent: those first
    too_strong_win_rate: float = 0.3  # up to this against a main agent: its snapshots, as a curriculum

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
        """Exploiters that beat it, else snapshots of `agent` that it forgot how to beat, else self-play."""
        exploiters = view.roster.snapshots_of_kinds(names_of(MainExploiter))
        if len(exploiters) and view.win_rates(me.slot, exploiters).min() < self.exploited_win_rate:
            return by_pfsp(view, me, exploiters, "squared")
        snapshots = view.roster.snapshots_of(agent.name)
        forgotten = remove_monotonic_suffix(view.win_rates(me.slot, snapshots), snapshots)
        if len(forgotten) and view.win_rates(me.slot, forgotten).min() < self.forgotten_win_rate:
            return by_pfsp(view, me, forgotten, "squared")
        return self.self_play(view, me, agent)

    def self_play(self, view: View, me: Player, agent: Player) -> Candidates:
        """`agent` itself, or its snapshots where it is too strong."""
        return agent_or_its_past(view, me, agent, self.too_strong_win_rate)

    def problems(self) -> list[str]:
        wrong = super().problems()
        if self.pfsp_share + self.verification_share > 1.0:
            wrong.append(f"pfsp_share + verification_share = {self.pfsp_share + self.verification_share}, above 1")
        return wrong


@KINDS.register("main_exploiter")
@dataclass(frozen=True)
class MainExploiter(AlphaStar):
    """Finds the weaknesses of the main agents; begins anew after every snapshot."""

    begins_frozen: ClassVar[bool] = False
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


@KINDS.register("league_exploiter")
@dataclass(frozen=True)
class LeagueExploiter(AlphaStar):
    """Finds weaknesses of the whole league; begins anew after a quarter of its snapshots."""

    begins_frozen: ClassVar[bool] = False
    reset_probability: float = 0.25

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        historical = view.roster.historical
        yield Branch("pfsp", 1.0, lambda: by_pfsp(view, me, historical, "linear_capped"))


def agent_or_its_past(view: View, me: Player, agent: Player, too_strong: float) -> Candidates:
    """`agent` while the win rate of `me` against it is above `too_strong`, else PFSP over its snapshots by variance."""
    snapshots = view.roster.snapshots_of(agent.name)
    rate = view.win_rates(me.slot, np.array([agent.slot], dtype=np.intp))[0]
    if rate > too_strong or not len(snapshots):
        return only(agent.slot)
    return by_pfsp(view, me, snapshots, "variance")
