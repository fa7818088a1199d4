"""A league at one moment as plain values, ready for JSON: the contents of the page's drawings and tables."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from league.cli import overview
from league.rules.ratings import elo_intervals
from league.rules.win_rates import games_of
from league.state.history import Restart
from workers.dashboard.fold import Fold, LastResult, Seen

SILENT = 30.0  # s, by the league's own clock, after which a process that was heard of before counts as gone
NEVER = 0xFFFF  # in place of a win rate: the two never met
OPEN = 500  # pairs of open matches, at most

Row = dict[str, Any]


def state(fold: Fold) -> Row:
    """Return all of a moment except curves over time: standings, payoff, open matches, processes, counters."""
    history, league = fold.history, fold.history.state
    now = history.now
    return {
        "event": history.last_event,
        "began": history.began,
        "time": now,
        "players": standings(fold),
        "payoff": payoff(fold),
        "restarts": restarts(history.restarts[-1000:]),
        "counters": overview.balance(league.counters, len(league.matches)),
        **moving(fold),
    }


def moving(fold: Fold) -> Row:
    """Return the parts of a moment that change with nearly every event: open matches, periods, processes."""
    history, league = fold.history, fold.history.state
    milliseconds = int(history.now * 1000)
    return {
        "time": history.now,
        "event": history.last_event,
        "matches": open_matches(fold, milliseconds),
        "periods": overview.open_periods(league, milliseconds),
        "processes": processes(fold),
        "counters": overview.balance(league.counters, len(league.matches)),
    }


def standings(fold: Fold) -> list[Row]:
    """Return a row per player, the strongest by Elo first: that of `league.show`, with slot, times and intervals."""
    history, league = fold.history, fold.history.state
    if not league.players:
        return []
    rows = overview.standings(league)
    for row in rows:
        name = row["player"]
        slot = league.players[name].slot
        row |= {
            "slot": slot,
            "joined": history.joined.get(name, history.began),
            "ended": history.ended.get(name),
        }
        row["win_rate_lower"], row["win_rate_upper"] = interval(row["win_rate"], row["games"])
    return rows


def touched(fold: Fold, slots: list[int]) -> list[Row]:
    """Return the parts of these players' rows that matches change."""
    league = fold.history.state
    if not slots:
        return []
    lower, upper = elo_intervals(np.array(league.ratings), league.payoff.cells)
    rows = []
    for slot in slots:
        games, rate = overview.record_of(league, slot)
        least, most = interval(rate, games)
        rows.append(
            {
                "slot": slot,
                "elo": round(league.ratings[slot], 1),
                "elo_lower": round(float(lower[slot]), 1),
                "elo_upper": round(float(upper[slot]), 1),
                "provisional": overview.is_provisional(league, slot),
                "games": round(games, 1),
                "win_rate": None if rate is None else round(rate, 4),
                "win_rate_lower": least,
                "win_rate_upper": most,
                "steps": league.progress[league.roster.by_slot[slot].name].steps,
            }
        )
    return rows


def payoff(fold: Fold) -> Row:
    """Return win rates and games of all ordered pairs by slot, packed: little-endian, row by row, in base 64.

    `rates` uint16 [n, n]: the win rate of the row's player times 65534, NEVER where the two never met; `games`
    float32 [n, n], decayed.
    """
    cells = fold.history.state.payoff.cells
    games = games_of(cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = (cells[..., 0] + 0.5 * cells[..., 1]) / games
    packed = np.where(games > 0.0, np.rint(np.nan_to_num(np.minimum(rates, 1.0)) * 65534.0), NEVER).astype("<u2")
    return {
        "slots": len(cells),
        "rates": b64encode(packed.tobytes()).decode(),
        "games": b64encode(games.astype("<f4").tobytes()).decode(),
    }


def changed_cells(fold: Fold, pairs: list[tuple[int, int]]) -> list[list[float]]:
    """Return [row, column, win rate, games] of both cells of each pair."""
    cells = fold.history.state.payoff.cells
    found = []
    for home, away in pairs:
        for row, column in {(home, away), (away, home)}:
            wins, draws, losses = cells[row, column].tolist()
            games = wins + draws + losses
            if games > 0.0:
                found.append([row, column, round((wins + 0.5 * draws) / games, 5), round(games, 2)])
    return found


def cell(fold: Fold, home: str, away: str) -> Row:
    """Return all that is known of a pair, from the side of `home`. Raises KeyError for a player that is not there."""
    league = fold.history.state
    row, column = league.players[home].slot, league.players[away].slot
    wins, draws, losses = (float(one) for one in league.payoff.cells[row, column])
    games = wins + draws + losses
    rate = (wins + 0.5 * draws) / games if games > 0.0 else None
    least, most = interval(rate, games)
    last = fold.last.between(row, column)
    return {
        "home": home,
        "away": away,
        "wins": round(wins, 3),
        "draws": round(draws, 3),
        "losses": round(losses, 3),
        "games": round(games, 3),
        "win_rate": rate,
        "win_rate_lower": least,
        "win_rate_upper": most,
        "last": None if last is None else _result(last),
    }


def interval(rate: float | None, games: float, z: float = 1.96) -> tuple[float | None, float | None]:
    """Return the Wilson interval of a win rate over `games`, in which a draw counts as half a win."""
    if rate is None or games <= 0.0:
        return None, None
    middle = (rate + z * z / (2 * games)) / (1 + z * z / games)
    reach = z / (1 + z * z / games) * math.sqrt(rate * (1 - rate) / games + z * z / (4 * games * games))
    return round(max(0.0, middle - reach), 4), round(min(1.0, middle + reach), 4)


def open_matches(fold: Fold, now: int) -> list[Row]:
    """Return the open matches: a row for each holder and pair, the one whose lease ends first at the top."""
    groups: dict[tuple[str, str, str], Row] = {}
    for match in overview.open_matches(fold.history.state, now):
        key = match["holder"], match["home"], match["away"]
        if key not in groups:
            groups[key] = {
                **{name: match[name] for name in ("holder", "home", "away", "branch", "lease_left")},
                "open": 0,
            }
        groups[key]["open"] += 1
    return list(groups.values())[:OPEN]


def processes(fold: Fold) -> list[Row]:
    """Return the processes that the league has heard of, and whether they are up by the league's clock.

    `count`: matches of an actor, learning periods of a learner.
    """
    league, now = fold.history.state, fold.history.now
    holding = {match.holder for match in league.matches.values()}
    learning = {progress.learner for progress in league.progress.values() if progress.is_open}
    return [*_heard("actor", fold.actors, holding, now), *_heard("learner", fold.learners, learning, now)]


def _heard(role: str, known: dict[str, Seen], busy: set[str], now: float) -> list[Row]:
    return [
        {
            "process": name,
            "role": role,
            "up": name in busy or now - seen.time <= SILENT,
            "silent": round(now - seen.time, 3),
            "count": seen.number,
        }
        for name, seen in reversed(known.items())
        if name
    ]


def lineage(fold: Fold) -> Row:
    """Return the players' descent: players with their parents and times, resets and copies."""
    history = fold.history
    players = [
        {
            "player": player.name,
            "kind": player.kind_shown,
            "parent": player.parent,
            "joined": history.joined.get(player.name, history.began),
            "ended": history.ended.get(player.name),
            "state": overview.standing_of(player),
        }
        for player in history.state.players.values()
    ]
    return {"players": players, "restarts": restarts(history.restarts)}


def over_time(fold: Fold) -> Row:
    """Return the curves over time: Elo of each learning player (None where it begins anew), and matches."""
    ratings = {}
    for name, series in fold.history.ratings.items():
        times, values = series.points()
        ratings[name] = {
            "time": np.round(times, 3).tolist(),
            "elo": [None if math.isnan(value) else round(value, 1) for value in values.tolist()],
        }
    through = fold.throughput
    return {
        "ratings": ratings,
        "throughput": {
            "time": [round(through.began + through.width * place, 3) for place in range(len(through.matches))],
            "matches": [round(number / through.width, 3) for number in through.matches],
            "games": [round(number / through.width, 3) for number in through.games],
        },
    }


def restarts(given: Sequence[Restart]) -> list[dict[str, Any]]:
    """Return the times at which learning players went on with other weights."""
    return [{"time": one.time, "player": one.player, "source": one.source} for one in given]


def _result(last: LastResult) -> dict[str, float]:
    return {"time": last.time, "wins": last.wins, "draws": last.draws, "losses": last.losses}
