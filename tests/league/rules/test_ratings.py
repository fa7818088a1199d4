"""league.rules.ratings: Elo against its published table, skills against the ground truth of simulated games."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openskill.models import PlackettLuce

from league.rules.ratings import Skill, Skills, elo_intervals, elo_update, expected_score, mirrored, rating_by

RATING = st.floats(-5000.0, 5000.0)


@pytest.mark.parametrize(
    ("points", "expected"), [(0, 0.5), (200, 0.7597), (400, 10 / 11), (-400, 1 / 11), (800, 100 / 101)]
)
def test_expected_scores_are_those_of_the_elo_table(points: float, expected: float) -> None:
    assert expected_score(1200.0 + points, 1200.0) == pytest.approx(expected, abs=5e-5)


def test_a_win_among_equals_moves_half_of_k() -> None:
    assert elo_update(1200.0, 1200.0, "w", k=32.0) == (1216.0, 1184.0)
    assert elo_update(1200.0, 1200.0, "d", k=32.0) == (1200.0, 1200.0)


@given(RATING, RATING, st.text("wdl", max_size=20))
def test_elo_updates_conserve_the_sum_of_points(home: float, away: float, outcomes: str) -> None:
    after = elo_update(home, away, outcomes)
    assert sum(after) == pytest.approx(home + away, abs=1e-6)
    assert elo_update(away, home, mirrored(outcomes))[::-1] == pytest.approx(after, abs=1e-6)


@given(RATING, RATING)
def test_the_expected_scores_of_both_sum_to_one(home: float, away: float) -> None:
    assert expected_score(home, away) + expected_score(away, home) == pytest.approx(1.0)


def test_elo_converges_to_the_true_difference() -> None:
    rng, home, away = np.random.default_rng(3), 1200.0, 1200.0
    truth = expected_score(1300.0, 1100.0)
    tail = []
    for game in range(20_000):
        home, away = elo_update(home, away, "w" if rng.random() < truth else "l", k=4.0)
        if game > 2000:
            tail.append(home - away)
    assert np.mean(tail) == pytest.approx(200.0, abs=10.0)


def test_skills_begin_as_trueskills_and_one_win_moves_both() -> None:
    skills = Skills()
    assert (skills["anyone"].mu, skills["anyone"].sigma, skills["anyone"].ordinal) == (25.0, 25.0 / 3.0, 0.0)
    skills.record("a", "b", "w")
    # Weng and Lin 2011, Plackett-Luce, two players: mu 27.635, sigma 8.066
    assert skills["a"].mu == pytest.approx(27.63539, abs=1e-4) and skills["b"].mu == pytest.approx(22.36461, abs=1e-4)
    assert skills["a"].sigma == skills["b"].sigma == pytest.approx(8.0659, abs=1e-4)


MU, SIGMA = st.floats(-100.0, 100.0), st.floats(0.05, 50.0)


@given(MU, SIGMA, MU, SIGMA, st.text("wdl", min_size=1, max_size=8))
def test_skills_equal_those_of_openskill(
    mu: float, sigma: float, other_mu: float, other_sigma: float, outcomes: str
) -> None:
    skills = Skills({"home": Skill(mu, sigma), "away": Skill(other_mu, other_sigma)})
    skills.record("home", "away", outcomes)
    model = PlackettLuce()
    teams = [[model.rating(mu=mu, sigma=sigma)], [model.rating(mu=other_mu, sigma=other_sigma)]]
    for outcome in outcomes:
        teams = model.rate(teams, ranks={"w": [1.0, 2.0], "d": [1.0, 1.0], "l": [2.0, 1.0]}[outcome])
    for name, (theirs,) in zip(("home", "away"), teams, strict=True):
        assert skills[name].mu == pytest.approx(theirs.mu, rel=1e-9, abs=1e-9)
        assert skills[name].sigma == pytest.approx(theirs.sigma, rel=1e-9)


PLACED = st.lists(st.tuples(MU, SIGMA, st.integers(0, 3)), min_size=3, max_size=5)


@given(PLACED)
def test_skills_by_placements_equal_those_of_openskill(players: list[tuple[float, float, int]]) -> None:
    places = sorted({place for _, _, place in players})
    names = [f"player {number}" for number in range(len(players))]
    skills = Skills({name: Skill(mu, sigma) for name, (mu, sigma, _) in zip(names, players, strict=True)})
    placed = [sum(other < place for _, _, other in players) for _, _, place in players]
    skills.record_placements(names, "".join(map(str, placed)))
    model = PlackettLuce()
    teams = [[model.rating(mu=mu, sigma=sigma)] for mu, sigma, _ in players]
    ranked = model.rate(teams, ranks=[float(places.index(place)) for _, _, place in players])
    for name, (theirs,) in zip(names, ranked, strict=True):
        assert skills[name].mu == pytest.approx(theirs.mu, rel=1e-6, abs=1e-6)
        assert skills[name].sigma == pytest.approx(theirs.sigma, rel=1e-6)


def test_a_player_that_is_in_a_game_twice_is_rated_by_its_first_seat() -> None:
    twice, once = Skills(), Skills()
    twice.record_placements(["a", "a", "b"], "021" + "012")
    once.record("a", "b", "ww")
    for name in ("a", "b"):
        assert twice[name].mu == pytest.approx(once[name].mu) and twice[name].sigma == pytest.approx(once[name].sigma)
    alone = Skills()
    alone.record_placements(["a", "a", "a"], "012")
    assert not alone.skills


def test_skills_order_players_by_their_strength_and_grow_certain() -> None:
    strength = {"weak": 0.0, "middle": 150.0, "strong": 300.0}
    rng, skills = np.random.default_rng(0), Skills()
    names = sorted(strength)
    for _ in range(600):
        home, away = rng.choice(names, 2, replace=False)
        won = rng.random() < expected_score(strength[home], strength[away])
        skills.record(home, away, "w" if won else "l")
    assert sorted(names, key=lambda name: skills[name].ordinal) == ["weak", "middle", "strong"]
    assert max(skills[name].sigma for name in names) < 3.0


def test_a_player_against_itself_keeps_its_skill() -> None:
    skills = Skills()
    skills.record("a", "a", "wwww")
    assert skills["a"] == Skill()


def test_a_draw_pulls_unequal_players_together() -> None:
    skills = Skills({"high": Skill(30.0, 5.0), "low": Skill(20.0, 5.0)})
    skills.record("high", "low", "d")
    assert skills["high"].mu < 30.0 and skills["low"].mu > 20.0


def test_true_ratings_lie_within_their_intervals_at_the_stated_rate() -> None:
    rng, inside, widths = np.random.default_rng(5), 0, []
    for _ in range(400):
        truth = 1200.0 + 400.0 * rng.normal()
        others = 1200.0 + 200.0 * rng.normal(size=12)
        scores = [float(rng.random() < expected_score(truth, other)) for other in others]
        mean, lower, upper = rating_by(others.tolist(), scores)
        assert lower < mean < upper
        inside += lower <= truth <= upper
        widths.append(upper - lower)
    assert 0.92 <= inside / 400 <= 0.98
    assert max(widths) < rating_by([], [])[2] - rating_by([], [])[1] == pytest.approx(2 * 1.96 * 400.0, rel=0.01)


def test_a_rating_by_scores_rises_with_wins_and_with_opponents_ratings() -> None:
    means = [
        rating_by([other] * 4, scores)[0]
        for other, scores in ((1200, "lddl"), (1200, "wddl"), (1500, "wddl"))
        for scores in [[{"w": 1.0, "d": 0.5, "l": 0.0}[one] for one in scores]]
    ]
    assert means == sorted(means) and means[1] == pytest.approx(1200.0, abs=2.0)


def test_more_games_make_a_rating_more_certain() -> None:
    ratings = np.array([1300.0, 1200.0, 1200.0])
    cells = np.zeros((3, 3, 3))
    cells[0, 1], cells[1, 0] = (60.0, 0.0, 40.0), (40.0, 0.0, 60.0)
    lower, upper = elo_intervals(ratings, cells)
    assert (lower < ratings).all() and (upper > ratings).all()
    assert upper[0] - lower[0] < 150.0 < 1500.0 < upper[2] - lower[2]
