"""Each kind over 2,000 matches of a simulated league: opponents come as often as the formulas say.

The formulas are written again here, plainly, from the papers. Payoffs change with every result, so the expected number
of games against an opponent is the sum of its probabilities p over the matches, and the variance the sum of p (1 - p).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from support.league_in_memory import add, league, set_return

from league.matchmaking import choose, kind_of
from league.rules.plateau import Look
from league.rules.ratings import elo_update, expected_score
from league.state.league_state import LeagueState

MATCHES = 2000
WEIGHTS: dict[str, Callable[[float], float]] = {
    "squared": lambda w: (1 - w) ** 2,
    "variance": lambda w: w * (1 - w),
    "linear": lambda w: 1 - w,
    "linear_capped": lambda w: min(0.5, 1 - w),
}


class Simulated:
    """A league whose players have true strengths, in points of Elo, that decide their matches."""

    def __init__(self, learners: dict[str, tuple[str, dict[str, object], float]], snapshots: dict[str, float]) -> None:
        self.state: LeagueState = league()
        self.strength: dict[str, float] = {}
        for name, (kind, config, strength) in learners.items():
            add(self.state, name, kind, config=config)
            self.strength[name] = strength
        for name, strength in snapshots.items():
            add(self.state, name, learners[name.partition("@")[0]][0])
            self.strength[name] = strength
        self.rng = np.random.default_rng(20_19)

    def rate(self, home: str, away: str) -> float:
        wins, draws, losses = self.state.payoff.cells[self.slot(home), self.slot(away)]
        games = wins + draws + losses
        return 0.5 if games == 0 else float((wins + draws / 2) / games)

    def slot(self, name: str) -> int:
        return self.state.players[name].slot

    def snapshots(self, parent: str | None = None) -> list[str]:
        return [name for name in self.state.players if "@" in name and parent in (None, name.partition("@")[0])]

    def play(self, home: str, away: str) -> None:
        won = self.rng.random() < expected_score(self.strength[home], self.strength[away])
        drawn = self.rng.random() < 0.1
        outcome = "d" if drawn else "w" if won else "l"
        one, other = self.slot(home), self.slot(away)
        self.state.payoff.record(one, other, outcome)
        if one != other:
            ratings = self.state.ratings
            ratings[one], ratings[other] = elo_update(ratings[one], ratings[other], outcome)
        self.state.counters["counted"] += 1


def pfsp(sim: Simulated, me: str, candidates: list[str], weighting: str) -> dict[str, float]:
    weights = {name: WEIGHTS[weighting](sim.rate(me, name)) for name in candidates}
    total = sum(weights.values())
    if total < 1e-10:
        return {name: 1 / len(candidates) for name in candidates}
    return {name: weight / total for name, weight in weights.items()}


def main_agent(sim: Simulated, me: str) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for name, p in pfsp(sim, me, sim.snapshots(), "squared").items():
        total[name] += 0.5 * p
    agents = [name for name in sim.strength if "@" not in name and name.startswith("main")]
    for agent in agents:
        past = sim.snapshots(agent)
        itself = {agent: 1.0} if sim.rate(me, agent) > 0.3 else pfsp(sim, me, past, "variance")
        exploiters = sim.snapshots("hunter")
        forgotten: list[str] = []
        for i in range(len(past) - 1, 0, -1):
            if sim.rate(me, past[i - 1]) < sim.rate(me, past[i]):
                forgotten = past[: i + 1]
                break
        verified = itself
        if min(sim.rate(me, name) for name in exploiters) < 0.3:
            verified = pfsp(sim, me, exploiters, "squared")
        elif forgotten and min(sim.rate(me, name) for name in forgotten) < 0.7:
            verified = pfsp(sim, me, forgotten, "squared")
        for share, found in ((0.15, verified), (0.35, itself)):
            for name, p in found.items():
                total[name] += share / len(agents) * p
    return total


def main_exploiter(sim: Simulated, me: str) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    agents = [name for name in sim.strength if "@" not in name and name.startswith("main")]
    for agent in agents:
        found = {agent: 1.0} if sim.rate(me, agent) > 0.1 else pfsp(sim, me, sim.snapshots(agent), "variance")
        for name, p in found.items():
            total[name] += p / len(agents)
    return total


def league_exploiter(sim: Simulated, me: str) -> dict[str, float]:
    return pfsp(sim, me, sim.snapshots(), "linear_capped")


def near_elo(sim: Simulated, me: str) -> dict[str, float]:
    others = [name for name in sim.strength if "@" not in name and name != me]
    ratings = sim.state.ratings
    density = {
        name: np.exp(-(((expected_score(ratings[sim.slot(me)], ratings[sim.slot(name)]) - 0.5) * 6) ** 2) / 2)
        for name in others
    }
    return {name: value / sum(density.values()) for name, value in density.items()}


def softmax(sim: Simulated, me: str) -> dict[str, float]:
    weights = {name: np.exp(-abs(sim.rate(me, name) - 0.5) / 0.1) for name in sim.snapshots()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def observe(sim: Simulated, me: str, formula: Callable[[Simulated, str], dict[str, float]]) -> dict[str, float]:
    """Return how far opponents' counts over 2,000 matches of `me` are from the expected ones, in standard errors."""
    learners = [name for name in sim.strength if "@" not in name]
    player = sim.state.players[me]
    kind = kind_of(player.kind, player.config)
    counts: dict[str, int] = defaultdict(int)
    expected: dict[str, float] = defaultdict(float)
    variance: dict[str, float] = defaultdict(float)
    for match in range(MATCHES):
        shares = formula(sim, me)
        if kind.shares == "decisions":  # a match against itself has twice as many decisions
            weights = {name: p / 2 if name == me else p for name, p in shares.items()}
            shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
        for name, p in shares.items():
            expected[name] += p
            variance[name] += p * (1 - p)
        opponent = choose(kind, sim.state, player, sim.rng).opponent.name
        counts[opponent] += 1
        sim.play(me, opponent)
        # The others play too, so that cells without `me` change as well.
        other = learners[match % len(learners)]
        sim.play(other, list(sim.strength)[int(sim.rng.integers(len(sim.strength)))])
    assert sum(expected.values()) == pytest.approx(MATCHES)
    assert set(counts) <= {name for name, mean in expected.items() if mean > 0}
    return {
        name: abs(counts[name] - mean) / max(np.sqrt(variance[name]), 1e-9) if variance[name] > 1e-9 else 0.0
        for name, mean in expected.items()
        if mean >= 5.0 or counts[name] >= 5
    }


RACE = {
    "main": ("main_agent", {"shares": "matches"}, 1500.0),
    "main_second": ("main_agent", {}, 1560.0),
    "hunter": ("main_exploiter", {}, 1250.0),
    "left": ("league_exploiter", {}, 1400.0),
}
HISTORY = {
    **{f"main@{version}": 1200.0 + 45.0 * version for version in range(6)},
    **{f"main_second@{version}": 1250.0 + 50.0 * version for version in range(5)},
    **{f"hunter@{version}": 1450.0 + 90.0 * version for version in range(3)},
    **{f"left@{version}": 1300.0 + 80.0 * version for version in range(4)},
}
PAST = {name: strength for name, strength in HISTORY.items() if name.startswith("main@")}


@pytest.mark.parametrize(
    ("me", "formula"),
    [("main", main_agent), ("main_second", main_agent), ("hunter", main_exploiter), ("left", league_exploiter)],
)
def test_alphastar_players_meet_their_opponents_as_often_as_published(
    me: str, formula: Callable[[Simulated, str], dict[str, float]]
) -> None:
    errors = observe(Simulated(RACE, HISTORY), me, formula)
    assert errors and max(errors.values()) <= 3.0, errors


def test_a_main_exploiter_far_too_weak_meets_snapshots_as_often_as_published() -> None:
    weak = {**RACE, "hunter": ("main_exploiter", {}, 900.0)}
    errors = observe(Simulated(weak, HISTORY), "hunter", main_exploiter)
    assert len(errors) > 2 and max(errors.values()) <= 3.0, errors


@pytest.mark.parametrize("weighting", sorted(WEIGHTS))
def test_pfsp_players_meet_their_opponents_as_often_as_each_weighting_says(weighting: str) -> None:
    sim = Simulated({"main": ("pfsp", {"weighting": weighting}, 1450.0)}, PAST)
    errors = observe(sim, "main", lambda sim, me: pfsp(sim, me, sim.snapshots(), weighting))
    assert len(errors) == 6 and max(errors.values()) <= 3.0, errors


SIMPLE: dict[str, tuple[dict[str, object], Callable[[Simulated, str], dict[str, float]]]] = {
    "self_play": ({}, lambda sim, me: {me: 1.0}),
    "random": ({"self_share": 0.2}, lambda sim, me: {me: 0.2, **dict.fromkeys(sim.snapshots(), 0.8 / 6)}),
    "fixed": ({"opponent": "main@2"}, lambda sim, me: {"main@2": 1.0}),
    "softmax": ({}, softmax),
    "best_response": ({"opponent": "main@3"}, lambda sim, me: {"main@3": 1.0}),
}


@pytest.mark.parametrize("kind", sorted(SIMPLE))
def test_simple_players_meet_their_opponents_as_often_as_defined(kind: str) -> None:
    config, formula = SIMPLE[kind]
    sim = Simulated({"main": (kind, config, 1450.0)}, PAST)
    errors = observe(sim, "main", formula)
    assert errors and max(errors.values()) <= 3.0, errors


@pytest.mark.parametrize("kind", ["psro", "pbt_psro", "best_response"])
def test_psro_players_meet_a_cycle_as_often_as_its_equilibrium_says(kind: str) -> None:
    sim = Simulated({"main": (kind, {"refresh": 10**9}, 1450.0)}, {f"main@{v}": 1400.0 for v in range(3)})
    for one, other, edge in ((0, 1, 0.8), (1, 2, 0.6), (2, 0, 0.4)):
        set_return(sim.state, f"main@{one}", f"main@{other}", edge)
    # The share of each is proportional to the stake between the other two.
    equilibrium = {"main@0": 0.6 / 1.8, "main@1": 0.4 / 1.8, "main@2": 0.8 / 1.8}
    errors = observe(sim, "main", lambda sim, me: equilibrium)
    assert len(errors) == 3 and max(errors.values()) <= 3.0, errors


def test_anytime_players_meet_each_snapshot_as_often_as_its_weight_says() -> None:
    config: dict[str, object] = {"rate": 0.5, "strategy": "second", "strategy_share": 0.2}
    learners = {"main": ("anytime_psro", config, 1450.0), "second": ("best_response", {}, 1450.0)}
    sim = Simulated(learners, {f"main@{version}": 1400.0 for version in range(3)})
    lost = {"main@0": (1.0, -1.0), "main@1": (0.0, 2.0), "main@2": (-1.0, 0.5)}  # per game, by snapshot and its seat
    members = tuple((sim.slot(name), *means) for name, means in lost.items())
    sim.state.looked["main"] = [Look(0, 10, 4096, 0.0, -1.0, 1.0, members)]
    weights = [{name: np.exp(-0.5 * means[seat]) for name, means in lost.items()} for seat in (0, 1)]
    shares = {name: sum(0.4 * of[name] / sum(of.values()) for of in weights) for name in lost}
    errors = observe(sim, "main", lambda sim, me: {"second": 0.2, **shares})
    assert len(errors) == 4 and max(errors.values()) <= 3.0, errors


def champion(sim: Simulated, me: str) -> dict[str, float]:
    seeds = sorted(sim.snapshots(), key=lambda name: -sim.state.ratings[sim.slot(name)])
    while len(seeds) > 1:  # of four: first against last, second against third
        pairs = list(zip(seeds, seeds[::-1], strict=True))[: len(seeds) // 2]
        won = [one if sim.rate(one, other) >= 0.5 else other for one, other in pairs]
        seeds = [name for name in seeds if name in won]
    return {seeds[0]: 1.0}


def test_champion_players_meet_the_winner_of_the_current_knockout() -> None:
    snapshots = {f"main@{version}": 1300.0 + 40.0 * version for version in range(4)}
    sim = Simulated({"main": ("champion", {}, 1450.0)}, snapshots)
    errors = observe(sim, "main", champion)
    assert errors and max(errors.values()) <= 3.0, errors


def test_pbt_players_meet_their_opponents_as_often_as_their_elo_says() -> None:
    strengths = {"a": 1200.0, "b": 1250.0, "c": 1350.0, "d": 1100.0}
    sim = Simulated({name: ("pbt_elo", {}, strength) for name, strength in strengths.items()}, {})
    errors = observe(sim, "a", near_elo)
    assert len(errors) == 3 and max(errors.values()) <= 3.0, errors
