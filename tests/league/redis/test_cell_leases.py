"""league.redis.cell_leases: evaluators share the cells, and the cell of a dead one is freed."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest
import redis
from support.waiting import until

from league.redis.cell_leases import CellLeases
from warren.errors import LeagueError

CELLS = [(first, second) for first in range(3) for second in range(3)]


def test_two_evaluators_never_hold_the_same_cell(redis_url: str, run_name: str) -> None:
    holding: dict[str, tuple[int, int]] = {}
    both, lock, clashes, taken = threading.Barrier(4), threading.Lock(), [], Counter[tuple[int, int]]()

    def evaluate(name: str) -> None:
        own = CellLeases(redis.Redis.from_url(redis_url), run_name, name)
        order = random.Random(name)
        both.wait()
        for _ in range(200):
            with lock:  # from here on `claim` may free the held cell
                holding.pop(name, None)
            cell = own.claim(order.sample(CELLS, 5))
            if cell is not None:
                with lock:
                    clashes.extend(other for other, held in holding.items() if held == cell)
                    holding[name] = cell
                    taken[cell] += 1

    threads = [threading.Thread(target=evaluate, args=(f"evaluator-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == [] and set(taken) == set(CELLS)


def test_a_claim_frees_the_held_cell_unless_it_is_claimed_again(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    one, other = CellLeases(client, run_name, "one"), CellLeases(client, run_name, "other")
    assert one.claim([(0, 1), (1, 0)]) == (0, 1)
    assert other.claim([(0, 1), (1, 0)]) == (1, 0)
    assert one.claim([(1, 0), (0, 1)]) == (0, 1)  # (1, 0) is the other's, so it keeps its own
    assert other.claim([(0, 1)]) is None  # it holds nothing now
    assert one.claim([(1, 0)]) == (1, 0)
    assert other.claim([(0, 1)]) == (0, 1)
    other.release()
    assert one.claim([(0, 1)]) == (0, 1)
    assert one.claim([]) is None
    assert client.keys(f"{run_name}cell:*") == []


def test_a_dead_evaluators_cell_is_taken_over_after_its_lease(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    dead, living = CellLeases(client, run_name, "dead", lease=0.2), CellLeases(client, run_name, "living", lease=60.0)
    assert dead.claim([(2, 5)]) == (2, 5)
    until(lambda: living.claim([(2, 5)]) == (2, 5))
    dead.release()  # it was only slow, and the cell is another's by now
    assert CellLeases(client, run_name, "third").claim([(2, 5)]) is None
    assert 0 < client.pttl(f"{run_name}cell:2:5") <= 60_000


def test_a_lease_of_zero_seconds_is_refused(redis_url: str, run_name: str) -> None:
    with pytest.raises(LeagueError, match="over at once"):
        CellLeases(redis.Redis.from_url(redis_url), run_name, "one", lease=0.0).claim([(0, 0)])
