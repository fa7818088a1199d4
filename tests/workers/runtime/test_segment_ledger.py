"""Every confirmed segment is learned, stale, or missing, and repeated deliveries are counted, on a real Redis."""

from __future__ import annotations

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.runtime.segment_ledger import Account, Ledger


def test_a_run_without_segments_has_an_empty_account(redis_url: str, run_name: str) -> None:
    ledger = Ledger(redis.Redis.from_url(redis_url), f"{run_name}:")
    assert ledger.account() == Account(0, 0, 0, 0, 0, 0)
    ledger.settle([], [])
    assert ledger.account() == Account(0, 0, 0, 0, 0, 0)


def test_segments_are_told_apart_by_source_and_number(redis_url: str, run_name: str) -> None:
    ledger = Ledger(redis.Redis.from_url(redis_url), f"{run_name}:")
    for number in range(20):
        ledger.confirm("actor-0", number)
    ledger.confirm("actor-1", 0)
    ledger.settle(learned=[("actor-0", 0), ("actor-0", 19)], stale=[("actor-0", 9)])
    assert ledger.account() == Account(confirmed=21, learned=2, stale=1, repeated=0, unused=0, missing=18)
    ledger.settle([], [], reset=[("actor-0", 1), ("actor-0", 9)])
    assert ledger.account() == Account(confirmed=21, learned=2, stale=1, repeated=0, unused=0, missing=17, reset=1)


def test_what_is_delivered_again_counts_as_repeated_and_is_learned_once(redis_url: str, run_name: str) -> None:
    ledger = Ledger(redis.Redis.from_url(redis_url), f"{run_name}:")
    for number in range(3):
        ledger.confirm("a", number)
    ledger.settle([("a", 0), ("a", 1)], [])
    ledger.settle([("a", 1), ("a", 2)], [])
    ledger.settle([("a", 2)], [])
    assert ledger.account() == Account(confirmed=3, learned=3, stale=0, repeated=2, unused=0, missing=0)


def test_a_segment_that_was_used_before_its_confirmation_was_noted_is_not_missing(
    redis_url: str, run_name: str
) -> None:
    ledger = Ledger(redis.Redis.from_url(redis_url), f"{run_name}:")
    ledger.settle([("a", 0)], [])  # the actor died between the broker's confirmation and its note
    assert ledger.account() == Account(confirmed=1, learned=1, stale=0, repeated=0, unused=0, missing=0)
    ledger.confirm("a", 1)
    ledger.settle([("a", 1)], [])
    assert ledger.account() == Account(confirmed=2, learned=2, stale=0, repeated=0, unused=0, missing=0)


def test_what_came_after_the_end_is_unused_and_neither_learned_nor_lost(redis_url: str, run_name: str) -> None:
    ledger = Ledger(redis.Redis.from_url(redis_url), f"{run_name}:")
    for number in range(3):
        ledger.confirm("a", number)
    ledger.settle([("a", 0)], [], unused=[("a", 1)])
    assert ledger.account() == Account(confirmed=3, learned=1, stale=0, repeated=0, unused=1, missing=1)


def test_what_was_refused_is_neither_learned_nor_missing(redis_url: str, run_name: str) -> None:
    ledger = Ledger(redis.Redis.from_url(redis_url), f"{run_name}:")
    for number in range(3):
        ledger.confirm("a", number)
    ledger.settle([("a", 0)], [], refused=[("a", 2)])
    assert ledger.account() == Account(confirmed=3, learned=1, stale=0, repeated=0, unused=0, missing=1, refused=1)


segments = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 40))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(segments), st.sets(segments), st.sets(segments))
def test_the_account_is_that_of_sets_whatever_the_numbers(
    redis_url: str,
    run_name: str,
    confirmed: set[tuple[str, int]],
    learned: set[tuple[str, int]],
    stale: set[tuple[str, int]],
) -> None:
    # Redis strings end at the highest bit set, so the three kinds have different lengths.
    client = redis.Redis.from_url(redis_url)
    if old := list(client.scan_iter(match=f"{run_name}:*")):
        client.delete(*old)
    ledger = Ledger(client, f"{run_name}:")
    for source, number in confirmed:
        ledger.confirm(source, number)
    ledger.settle(learned, stale)
    account = ledger.account()
    assert account.confirmed == len(confirmed | learned | stale)
    assert account.learned == len(learned)
    assert account.stale == len(stale - learned)
    assert account.confirmed == account.learned + account.stale + account.unused + account.missing
    assert account.missing == len(confirmed - learned - stale)
