"""The sum tree: proportional draws at sizes where its levels change, and sums that stay right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from agents.replay import SumTree


@pytest.mark.parametrize("size", [1, 31, 33, 1024, 1025, 40_000])
def test_items_are_drawn_in_proportion_to_their_priorities(size: int) -> None:
    generator = np.random.default_rng(size)
    tree, priorities = SumTree(size), np.zeros(size)
    chosen = generator.choice(size, min(size, 9), replace=False)
    priorities[chosen] = generator.random(len(chosen)) + 0.1
    tree.set_range(0, priorities)
    counts = np.bincount(np.concatenate([tree.draw(100, generator) for _ in range(30)]), minlength=size)
    assert counts[priorities == 0].sum() == 0
    expected = priorities[chosen] / priorities.sum() * counts.sum()
    assert chisquare(counts[chosen], expected).pvalue > 1e-4 or len(chosen) == 1


def test_draws_of_a_batch_are_stratified() -> None:
    tree = SumTree(64)
    tree.set_range(0, np.ones(64))
    assert np.array_equal(tree.draw(64, np.random.default_rng(0)), np.arange(64))


def test_sums_stay_right_after_many_changes() -> None:
    generator, tree = np.random.default_rng(1), SumTree(5000)
    expected = np.zeros(5000)
    for _ in range(50):
        items = generator.integers(0, 5000, 40)
        values = generator.random(40) * 10.0 ** generator.integers(-6, 6)
        tree.set(items, values)
        expected[items] = values
        start = int(generator.integers(0, 4900))
        run = generator.random(100)
        tree.set_range(start, run)
        expected[start : start + 100] = run
    assert np.array_equal(tree.priorities, expected)
    assert tree.total == pytest.approx(expected.sum(), rel=1e-12)


def test_drawing_is_refused_if_all_priorities_are_zero() -> None:
    with pytest.raises(ValueError, match="no item has a priority above 0"):
        SumTree(10).draw(1, np.random.default_rng(0))


def test_rounding_at_the_end_of_a_block_draws_no_item_without_priority() -> None:
    tree, generator = SumTree(2048), np.random.default_rng(0)
    priorities = np.zeros(2048)
    priorities[::32] = 0.1 + 1e-17 * np.arange(64)
    tree.set_range(0, priorities)
    assert (tree.draw(20_000, generator) % 32 == 0).all()
