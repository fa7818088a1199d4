"""Tests that every segment made is learned, stored, dropped for a reason, or in flight, on a real Redis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.runtime.segment_ledger import HELD, LEARNED, REASONS, STORED, Account, Count, Ledger, Segment, Settled

STEPS = 8  # per segment
NUMBERS = itertools.count(1)


@pytest.fixture
def ledger(redis_url: str, run_name: str) -> Ledger:
    return Ledger(redis.Redis.from_url(redis_url), f"{run_name}:")


def settle(ledger: Ledger, settled: Iterable[Settled]) -> None:
    ledger.settle(settled, "teller", next(NUMBERS))


def a(number: int, source: str = "a") -> Segment:
    return Segment(source, number, STEPS)


def learned(*numbers: int) -> list[Settled]:
    return [Settled(a(number), LEARNED, STEPS) for number in numbers]


def adds_up(account: Account) -> bool:
    parts = [account.learned, account.stored, *account.dropped.values(), account.in_flight]
    return account.made == (sum(part.segments for part in parts), sum(part.steps for part in parts))


def test_a_run_without_segments_has_an_empty_account(ledger: Ledger) -> None:
    for _ in range(2):
        account = ledger.account()
        assert account.made == account.learned == account.in_flight == Count(0, 0)
        assert adds_up(account) and set(account.dropped) == set(REASONS)
        settle(ledger, [])


def test_segments_are_counted_by_source_number_and_outcome(ledger: Ledger) -> None:
    for number in range(20):
        ledger.make(a(number))
        if number < 18:
            ledger.confirm(a(number))
    ledger.make(a(0, "b"))
    reasons = [Settled(a(number), reason, STEPS) for number, reason in enumerate(REASONS, 1)]
    settle(ledger, [*learned(0, 19), *reasons])
    account = ledger.account()
    assert account.made == Count(21, 21 * STEPS) and account.learned == Count(2, 2 * STEPS)
    assert account.dropped == dict.fromkeys(REASONS, Count(1, STEPS))
    assert account.in_flight == Count(13, 13 * STEPS)
    assert (account.unsent, account.missing) == (2, 11), "18 of one actor and 0 of another have not reached the broker"
    assert adds_up(account)


def test_a_redelivered_segment_counts_as_repeated_and_is_learned_once(ledger: Ledger) -> None:
    for number in range(3):
        ledger.make(a(number))
        ledger.confirm(a(number))
    for numbers in ((0, 1), (1, 2), (2,)):
        settle(ledger, learned(*numbers))
    settle(ledger, [Settled(a(2), "stale", STEPS)])
    account = ledger.account()
    assert (account.made, account.learned, account.repeated) == (Count(3, 3 * STEPS), Count(3, 3 * STEPS), 3)
    assert adds_up(account)


def test_stored_segments_are_counted_with_those_that_were_not_kept(ledger: Ledger) -> None:
    ledger.keep(Count())
    settle(ledger, [Settled(a(number), STORED, STEPS) for number in range(5)])
    assert ledger.account().not_kept == Count()
    for kept in (3, 7, 0):
        ledger.keep(Count(kept, kept * STEPS))
        account = ledger.account()
        assert account.stored == Count(5, 5 * STEPS) and adds_up(account)
        lost = max(5 - kept, 0)
        assert account.not_kept == Count(lost, lost * STEPS)


def test_a_redelivered_segment_is_stored_once_or_was_kept_after_all(ledger: Ledger) -> None:
    settle(ledger, [Settled(a(number), STORED, STEPS) for number in range(5)])
    ledger.keep(Count(3, 3 * STEPS))
    settle(ledger, [Settled(a(2), HELD, STEPS), Settled(a(4), STORED, STEPS)])
    account = ledger.account()
    assert (account.stored, account.not_kept) == (Count(5, 5 * STEPS), Count(1, STEPS))
    assert account.repeated == 2 and adds_up(account)
    settle(ledger, [Settled(a(7), HELD, STEPS)])  # the ledger was never told of this one
    assert ledger.account().stored == Count(6, 6 * STEPS) and adds_up(ledger.account())


def test_a_call_that_is_repeated_because_its_answer_was_lost_counts_once(ledger: Ledger) -> None:
    told = [*learned(0, 1), Settled(a(2), STORED, STEPS)]
    for _ in range(2):
        ledger.settle(told, "teller", 1)
    account = ledger.account()
    assert (account.learned, account.stored) == (Count(2, 2 * STEPS), Count(1, STEPS))
    assert (account.repeated, account.not_kept) == (0, Count())
    ledger.settle(told, "its successor", 1)
    ledger.settle(learned(3), "teller", 2)
    account = ledger.account()
    assert (account.repeated, account.learned.segments) == (3, 3) and adds_up(account)


def test_too_old_steps_of_a_learned_segment_are_counted_as_too_old(ledger: Ledger) -> None:
    settle(ledger, [Settled(a(0), LEARNED, 5), Settled(a(1), "stale", STEPS)])
    account = ledger.account()
    assert (account.learned, account.dropped["stale"]) == (Count(1, 5), Count(1, 3 + STEPS))
    assert adds_up(account)


def test_a_segment_used_before_its_actor_noted_it_is_not_missing(ledger: Ledger) -> None:
    settle(ledger, learned(0))  # Redis was away when it was made, and then the actor died
    ledger.confirm(a(1))
    account = ledger.account()
    assert (account.made.segments, account.confirmed, account.missing, account.unsent) == (2, 2, 1, 0)
    ledger.make(a(0))
    ledger.confirm(a(0))
    assert ledger.account() == account and adds_up(account)


segments = st.builds(Segment, st.sampled_from(["a", "b"]), st.integers(0, 40), st.just(STEPS))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(segments), st.sets(segments), st.sets(segments), st.sets(segments))
def test_the_account_equals_that_of_sets_for_any_numbers(
    redis_url: str,
    run_name: str,
    made: set[Segment],
    confirmed: set[Segment],
    used: set[Segment],
    stale: set[Segment],
) -> None:
    # Redis strings end at the highest bit set, so the three kinds have different lengths.
    client = redis.Redis.from_url(redis_url)
    if old := list(client.scan_iter(match=f"{run_name}:*")):
        client.delete(*old)
    ledger = Ledger(client, f"{run_name}:")
    for segment in made:
        ledger.make(segment)
    for segment in confirmed:
        ledger.confirm(segment)
    settle(ledger, [Settled(segment, LEARNED, STEPS) for segment in used])
    settle(ledger, [Settled(segment, "stale", STEPS) for segment in stale])
    account = ledger.account()
    everything = made | confirmed | used | stale
    assert account.made.segments == len(everything)
    assert account.learned.segments == len(used)
    assert account.dropped["stale"].segments == len(stale - used)
    assert account.repeated == len(stale & used)
    assert account.missing == len(confirmed - used - stale)
    assert account.unsent == len(made - confirmed - used - stale)
    assert account.confirmed == len(confirmed | used | stale)
    assert adds_up(account)
