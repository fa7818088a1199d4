"""Ratings: Elo, updated with every game in the store, and a Bayesian skill with its uncertainty, from all results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from league.rules.win_rates import MIRRORED, SCORES

ELO_INITIAL = 1200.0
ELO_K = 16.0  # points at stake in one game
ELO_SCALE = 400.0  # difference in points at which the stronger player is expected to score ten times as often
ELO_RANGE = 300.0  # times ELO_SCALE: beyond it the power would overflow, and the answer is 0 or 1 anyway

PRIOR_GRID = np.arange(-2000.0, 2001.0, 2.0)  # points around ELO_INITIAL at which `rating_by` computes the belief

BETA = 25.0 / 6.0  # spread of a single game, on the scale of TrueSkill
TAU = 25.0 / 300.0  # change of a strength from game to game, so that no skill ever becomes certain
KAPPA = 1e-4  # the least factor by which one game reduces a variance


def expected_score(rating: float, other: float) -> float:
    """Return the expected score in (0, 1) of a player rated `rating` against one rated `other` (Elo 1978)."""
    exponent = max(-ELO_RANGE, min(ELO_RANGE, (other - rating) / ELO_SCALE))
    score: float = 1.0 / (1.0 + 10.0**exponent)
    return score


def expected_scores(rating: float, others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected score of a player rated `rating` against each of `others`, (n,)."""
    return np.array([expected_score(rating, other) for other in others.tolist()])


def rating_by(others: Sequence[float], scores: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Return (mean, lower, upper) of a rating by scores (1, 0.5 or 0) against players rated `others`, which stay fixed.

    This is Elo's model with a normal belief around ELO_INITIAL of deviation ELO_SCALE before any game; the rating is
    within the bounds with probability `confidence`.
    """
    ratings = ELO_INITIAL + PRIOR_GRID
    belief = -0.5 * np.square(PRIOR_GRID / ELO_SCALE)
    for other, score in zip(others, scores, strict=True):
        better = (ratings - other) * math.log(10.0) / ELO_SCALE
        belief -= score * np.logaddexp(0.0, -better) + (1.0 - score) * np.logaddexp(0.0, better)
    shares = np.exp(belief - belief.max())
    shares /= shares.sum()
    tail = (1.0 - confidence) / 2.0
    lower, upper = np.searchsorted(np.cumsum(shares), (tail, 1.0 - tail))
    return float(shares @ ratings), float(ratings[lower]), float(ratings[min(upper, len(ratings) - 1)])


def elo_intervals(
    ratings: NDArray[np.float64], cells: NDArray[np.float64], confidence: float = 1.96
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (lower, upper) of each Elo rating [n], from the decayed results `cells` [n, n, 3] against the others.

    This is Elo's model with a normal belief of deviation 400 before any game and the others' ratings taken as exact:
    standard errors by the curvature of the likelihood at the rating, times `confidence`. Self-play games do not count.
    """
    games = cells.sum(axis=-1)
    np.fill_diagonal(games, 0.0)
    scale = math.log(10.0) / ELO_SCALE
    expected = 1.0 / (1.0 + np.power(10.0, np.clip((ratings[None] - ratings[:, None]) / ELO_SCALE, -30.0, 30.0)))
    known = (games * expected * (1.0 - expected)).sum(axis=1) * scale**2 + 1.0 / ELO_SCALE**2
    reach = confidence / np.sqrt(known)
    return ratings - reach, ratings + reach


def elo_update(home: float, away: float, outcomes: Sequence[str], k: float = ELO_K) -> tuple[float, float]:
    """Return the ratings of both after games with `outcomes` ("w", "d", "l" of home), oldest first; their sum stays."""
    for outcome in outcomes:
        change = k * (SCORES[outcome] - expected_score(home, away))
        home, away = home + change, away - change
    return home, away


@dataclass(frozen=True)
class Skill:
    """A normal belief about a player's strength, on the scale of TrueSkill (25 at the start)."""

    mu: float = 25.0
    sigma: float = 25.0 / 3.0

    def interval(self) -> tuple[float, float]:
        """Return (lower, upper); the strength is between these with 95 % certainty."""
        return self.mu - 1.96 * self.sigma, self.mu + 1.96 * self.sigma

    @property
    def ordinal(self) -> float:
        """Return mu - 3 sigma: with 99.7 % certainty the player is at least this strong; 0 at the start."""
        return self.mu - 3.0 * self.sigma


class Skills:
    """Skills of all players, a fold over results, by the Plackett-Luce model of Weng and Lin 2011.

    The update of a game is that of openskill 6 (tests compare the two), written out for two players for speed: a replay
    takes a million of them.
    """

    def __init__(self, skills: dict[str, Skill] | None = None) -> None:
        self.skills = dict(skills or {})

    def __getitem__(self, name: str) -> Skill:
        return self.skills.get(name, Skill())

    def record(self, home: str, away: str, outcomes: Iterable[str]) -> None:
        """Count games of `home` against `away`; games of a player against itself change nothing."""
        if home == away:
            return
        one, other = self[home], self[away]
        mu, sigma, other_mu, other_sigma = one.mu, one.sigma, other.mu, other.sigma
        for outcome in outcomes:
            variance, other_variance = sigma * sigma + TAU * TAU, other_sigma * other_sigma + TAU * TAU
            c = math.sqrt(variance + other_variance + 2.0 * BETA * BETA)
            expected = 1.0 / (1.0 + math.exp(max(-300.0, min(300.0, (other_mu - mu) / c))))
            change = (SCORES[outcome] - expected) / c
            mu, other_mu = mu + variance * change, other_mu - other_variance * change
            known = expected * (1.0 - expected) / (c * c * c)  # the more even a game, the more it tells
            sigma = math.sqrt(variance * max(1.0 - known * variance**1.5, KAPPA))
            other_sigma = math.sqrt(other_variance * max(1.0 - known * other_variance**1.5, KAPPA))
        self.skills[home], self.skills[away] = Skill(mu, sigma), Skill(other_mu, other_sigma)

    def record_placements(self, names: Sequence[str], placements: str) -> None:
        """Count games of more than two players by `placements`, a digit a player (win_rates.placements_of).

        If a player is in a game twice, its first place counts.
        """
        seats = [names.index(name) for name in dict.fromkeys(names)]
        if len(seats) > 1:
            for begin in range(0, len(placements), len(names)):
                self._place([names[seat] for seat in seats], [int(placements[begin + seat]) for seat in seats])

    def _place(self, names: Sequence[str], places: Sequence[int]) -> None:
        known = [self[name] for name in names]
        variances = [skill.sigma**2 + TAU**2 for skill in known]
        c = math.sqrt(sum(variance + BETA**2 for variance in variances))
        most = max(skill.mu for skill in known)
        powers = [math.exp(max(-600.0, (skill.mu - most) / c)) for skill in known]
        # Per player: the sum of the powers at its place or below, and the number of players at its place.
        sums = [sum(power for power, other in zip(powers, places, strict=True) if other >= place) for place in places]
        shared = [places.count(place) for place in places]
        for i, (name, variance) in enumerate(zip(names, variances, strict=True)):
            won, told = 0.0, 0.0
            for q, place in enumerate(places):
                if place <= places[i]:
                    share = powers[i] / sums[q]
                    won += ((q == i) - share) / shared[q]
                    told += share * (1.0 - share) / shared[q]
            told *= variance / c**2 * math.sqrt(variance) / c
            sigma = math.sqrt(variance * max(1.0 - told, KAPPA))
            self.skills[name] = Skill(known[i].mu + won * variance / c, sigma)

    def copy(self, source: str, target: str) -> None:
        """Give `target`, which has taken over the weights of `source`, the skill of `source`."""
        self.skills[target] = self[source]

    def forget(self, name: str) -> None:
        """Forget the skill of a player that begins anew."""
        self.skills.pop(name, None)


def mirrored(outcomes: str) -> str:
    """Return the same games seen from the other side: "wdl" becomes "ldw"."""
    return "".join(MIRRORED[outcome] for outcome in outcomes)
