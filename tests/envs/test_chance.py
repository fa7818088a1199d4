"""Random numbers from seeds of games: uniform, repeatable, the same alone as among other games."""

import numpy as np

from envs.two_player.chance import Chance, decision_noise


def test_draws_are_uniform_and_independent_between_games_and_draws():
    chance = Chance(2000, seed=1)
    rows = np.arange(2000)
    chance.begin(rows)
    drawn = np.stack([chance.uniform(rows) for _ in range(50)])
    assert drawn.min() > 0 and drawn.max() < 1
    counts = np.histogram(drawn, 100, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 180  # chi-square with 99 degrees of freedom: p = 1e-6
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 0.1
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.7  # 50 draws: p = 1e-8
    assert len(np.unique(chance.seeds)) == 2000


def test_a_games_draws_depend_on_its_seed_alone():
    many, one = Chance(5, seed=3), Chance(1, seed=4)
    many.begin(np.arange(5))
    one.given = many.seeds[2:3]
    one.begin(np.arange(1))
    several = [many.uniform(np.arange(5))[2] for _ in range(4)]
    assert several == [one.draw(0), one.uniform(np.arange(1))[0], one.draw(0), one.draw(0)]


def test_every_new_game_has_a_new_seed_and_all_follow_from_the_first():
    def seeds(seed):
        chance, found = Chance(3, seed), []
        for games in ([0, 1, 2], [1], [0, 2], *([[0, 1, 2]] * 2000)):
            chance.begin(np.array(games))
            found += chance.seeds[games].tolist()
        return found

    assert seeds(1) == seeds(1) and len(set(seeds(1))) == len(seeds(1)) and seeds(1)[0] != seeds(2)[0]


def test_noise_of_decisions_is_exponential_and_the_same_for_a_game_alone():
    seeds = np.arange(20_000)
    noise = decision_noise(seeds, np.full(20_000, 3), 4)
    assert noise.shape == (20_000, 4) and noise.dtype == np.float32 and (noise > 0).all()
    assert np.allclose(noise.mean(axis=0), 1, atol=0.04) and np.allclose(noise.var(axis=0), 1, atol=0.1)
    assert np.array_equal(noise[7:8], decision_noise(seeds[7:8], np.array([3]), 4))
