"""The state of a league as rows of plain values, which `league.show` prints as text or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from league.matchmaking import KINDS, kind_of
from league.matchmaking.view import Player
from league.models.model import DISK, ModelInfo
from league.models.pool import Pool
from league.redis.pause_reasons import PauseReasons
from league.redis.people import People
from league.redis.shared_score import SharedScore
from league.redis.store import Store
from league.rules.gains import Gain
from league.rules.people import people
from league.rules.ratings import elo_intervals
from league.rules.win_rates import games_of
from league.state.league_state import LeagueState

Row = dict[str, Any]
GAIN = tuple(field.name for field in fields(Gain))
FEW_OPPONENTS, FEW_GAMES = 3, 30  # below these an Elo rating is provisional


def overview(store: Store, pool: Pool, width: int) -> Row:
    """Return all that `league.show` prints, the league read at one moment; the payoff has at most `width` players."""
    state, score = store.load(), SharedScore(store.redis, store.prefix).get()
    seconds, microseconds = store.redis.time()
    now = seconds * 1000 + microseconds // 1000
    return {
        "time": now / 1000.0,
        "players": standings(state, PauseReasons(store).all()),
        "people": people(People(store.redis, store.prefix).games().values()),
        "payoff": payoff(state, width),
        "matches": open_matches(state, now),
        "periods": open_periods(state, now),
        "wanted": [str(ref) for ref in pool.wanted()],
        "responses": best_responses(state, (score or {}).get("gains") or {}),
        "strength": score,
        "counters": balance(state.counters, len(state.matches)),
        "pool": pool_size(pool.models()),
    }


def record_of(state: LeagueState, slot: int) -> tuple[float, float | None]:
    """Return a player's decayed games against others, and its mean win rate over those that it met (None: nobody)."""
    others = state.roster.everyone[state.roster.everyone != slot]
    games = state.games(slot, others)
    met = others[games > 0]
    return float(games.sum()), float(state.win_rates(slot, met).mean()) if len(met) else None


def is_provisional(state: LeagueState, slot: int) -> bool:
    """Return True where a player has met too few others, or played too few games, for its Elo to be compared."""
    others = state.roster.everyone[state.roster.everyone != slot]
    games = state.games(slot, others)
    met = int(np.count_nonzero(games))
    return met < min(FEW_OPPONENTS, len(others)) or float(games.sum()) < FEW_GAMES


def standings(state: LeagueState, reasons: Mapping[str, str] | None = None) -> list[Row]:
    """Return a row per player, the strongest by Elo first, removed ones last. `reasons`: player -> why it is paused."""
    rows = []
    lower, upper = elo_intervals(np.array(state.ratings), state.payoff.cells)
    for player in state.roster:
        games, rate = record_of(state, player.slot)
        progress = state.progress[player.name]
        rows.append(
            {
                "player": player.name,
                "kind": player.kind_shown,
                "state": standing_of(player),
                "reason": (reasons or {}).get(player.name, "") if standing_of(player) == "paused" else "",
                "elo": round(state.ratings[player.slot], 1),
                "elo_lower": round(float(lower[player.slot]), 1),
                "elo_upper": round(float(upper[player.slot]), 1),
                "provisional": is_provisional(state, player.slot),
                "games": round(games, 1),
                "win_rate": None if rate is None else round(rate, 4),
                "generation": player.generation,
                "steps": progress.steps,
                "period": progress.period,
                "period_open": progress.is_open and standing_of(player) in ("learning", "paused"),
                "parent": player.parent,
                "model": None if player.model is None else str(player.model),
            }
        )
    return sorted(rows, key=lambda row: (row["state"] == "removed", -float(row["elo"])))


def best_responses(state: LeagueState, gains: Mapping[str, Row]) -> list[Row]:
    """Return a row per player whose kind responds: its options, the steps of its budget that are spent, and its gain.

    `gains`: player -> the gain of its newest response, as evaluators measured it (league.rules.gains.Gain), the fields
    of which are None while there is none. A kind of a user's own, which is not known here, is taken for no response.
    """
    rows = []
    for player in state.roster.present:
        if player.parent is None and player.kind in KINDS and KINDS[player.kind].responds:
            kind, progress = kind_of(player.kind, player.config), state.progress[player.name]
            row = {
                "player": player.name,
                "opponent": getattr(kind, "opponent", "") or "the mixture",
                "budget": str(getattr(kind, "budget", "")),
                "spent": progress.steps - progress.snapshot_steps,
            }
            rows.append({**row, **dict.fromkeys(GAIN), **gains.get(player.name, {})})
    return rows


def standing_of(player: Player) -> str:
    """Return the state of a player: the first that applies of "removed", "frozen", "paused" and "learning"."""
    for state in ("removed", "frozen", "paused"):
        if getattr(player, state):
            return state
    return "learning"


def payoff(state: LeagueState, width: int) -> Row:
    """Return win rates between at most `width` players, ordered by Elo; learning players are chosen first.

    `win_rates` are those of the row's player, None where it never met the column's player; `games` are decayed.
    """
    roster = state.roster
    strongest = sorted(roster.present, key=lambda player: -state.ratings[player.slot])
    shown = sorted(strongest, key=lambda player: player.frozen)[: max(0, width)]
    shown.sort(key=lambda player: -state.ratings[player.slot])
    slots = np.array([player.slot for player in shown], dtype=np.intp)
    games, rates = games_of(state.payoff.cells[np.ix_(slots, slots)]), state.matrix(slots)
    return {
        "players": [player.name for player in shown],
        "states": [standing_of(player) for player in shown],
        "left_out": len(strongest) - len(shown),
        "win_rates": [
            [round(float(rate), 4) if played > 0 else None for rate, played in zip(*rows, strict=True)]
            for rows in zip(rates, games, strict=True)
        ],
        "games": np.round(games, 1).tolist(),
    }


def open_matches(state: LeagueState, now: int) -> list[Row]:
    """Return open matches and their holders, the next to expire first; `lease_left` in s, negative once expired."""
    return [
        {
            "match": match.id,
            "holder": match.holder,
            "home": match.home,
            "away": ", ".join(match.names[1:]),
            "branch": match.branch,
            "lease_left": (match.deadline - now) / 1000.0,
        }
        for match in sorted(state.matches.values(), key=lambda match: match.deadline)
    ]


def open_periods(state: LeagueState, now: int) -> list[Row]:
    """Return open periods and their learners; where `lease_left` (s) is negative, the next learner takes over.

    Periods of frozen and removed players are left out.
    """
    return [
        {
            "player": name,
            "period": progress.period,
            "learner": progress.learner,
            "steps": progress.steps,
            "lease_left": (progress.deadline - now) / 1000.0,
        }
        for name, progress in state.progress.items()
        if progress.is_open and not state.players[name].frozen and not state.players[name].removed
    ]


def balance(counters: Mapping[str, int], unended: int) -> Row:
    """Return all counters, the number of open matches, and how many issued matches are unaccounted for (`missing`)."""
    ended = sum(counters.get(name, 0) for name in ("counted", "expired", "aborted"))
    zero = dict.fromkeys(("issued", "counted", "expired", "aborted", "games"), 0)
    return {**zero, **counters, "open": unended, "missing": counters.get("issued", 0) - ended - unended}


def pool_size(models: Iterable[ModelInfo]) -> Row:
    """Return how many models there are, and how many bytes of them are in Redis and only on disk."""
    found = list(models)
    spilled = [info for info in found if info.place == DISK]
    return {
        "models": len(found),
        "frozen": sum(info.frozen for info in found),
        "spilled": len(spilled),
        "redis_bytes": sum(info.size for info in found if info.place != DISK),
        "disk_bytes": sum(info.size for info in spilled),
    }
