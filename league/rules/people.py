"""Rated games of people against a league's players; people are not part of the league and get no matches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from league.rules.ratings import rating_by
from league.rules.win_rates import SCORES, outcomes_of


@dataclass(frozen=True)
class PersonGame:
    """A finished game. `elo`: the opponent's rating then; `series`: games that make one outcome in the league."""

    person: str
    opponent: str
    elo: float
    seat: int
    returned: float  # to the person
    series: int
    time: float  # s since 1970


def people(games: Iterable[PersonGame]) -> list[dict[str, Any]]:
    """Return a row for each person, the best first: games, mean return, outcomes, Elo with its 95 % interval.

    Outcomes are counted as between players of the league: one for each series of games against one opponent.
    """
    rows = []
    ordered = sorted(games, key=lambda game: (game.person, game.opponent, game.time))
    for person, of_person in groupby(ordered, lambda game: game.person):
        others: list[float] = []
        outcomes, met, returns = "", [], []
        for opponent, held in groupby(of_person, lambda game: game.opponent):
            against = list(held)
            gained = np.array([game.returned for game in against])
            found = outcomes_of(gained, against[-1].series)
            others += [float(part.mean()) for part in np.array_split([game.elo for game in against], len(found))]
            outcomes += found
            met.append(opponent)
            returns += gained.tolist()
        elo, lower, upper = rating_by(others, [SCORES[outcome] for outcome in outcomes])
        rows.append(
            {
                "person": person,
                "games": len(returns),
                "mean_return": round(float(np.mean(returns)), 4),
                "outcomes": len(outcomes),
                "elo": round(elo, 1),
                "elo_lower": lower,
                "elo_upper": upper,
                "opponents": met,
            }
        )
    return sorted(rows, key=lambda row: -float(row["elo"]))
