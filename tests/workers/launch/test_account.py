"""Tests of the account of a run's segments: two sums that add up, and the last place of segments in flight."""

from __future__ import annotations

from dataclasses import replace

from workers.config.schema import Sampling
from workers.launch.kinds.account import as_table, as_text
from workers.runtime.segment_ledger import REASONS, Account, Count

NONE = dict.fromkeys(REASONS, Count())
STREAMED = Account(
    made=Count(1200, 153_600), learned=Count(1180, 151_000), dropped={**NONE, "stale": Count(9, 1192)},
    unsent=3, missing=8, repeated=2,
)  # fmt: skip
GATHERED = Account(
    made=Count(40, 5120), learned=Count(36, 4608), dropped={**NONE, "spare": Count(2, 256)},
    unsent=2, missing=0, repeated=0,
)  # fmt: skip


def test_the_table_accounts_for_every_segment_and_step_made() -> None:
    for account in (STREAMED, GATHERED):
        found = as_table(account, left=0)
        for numbers in (found, found["steps"]):
            assert numbers["made"] == sum(numbers[name] for name in ("learned", "stored", *REASONS, "in_flight"))
        assert found["confirmed"] == sum(found[name] for name in ("learned", "stored", *REASONS, "missing"))


def test_stored_segments_are_shown_with_those_of_an_ended_replay() -> None:
    account = replace(STREAMED, learned=Count(), stored=Count(1180, 151_000), not_kept=Count(40, 5120))
    found = as_table(account, left=6)
    assert found["stored"] == 1180 and found["not_kept"] == 40 and found["steps"]["not_kept"] == 5120
    segments, steps = as_text(found, Sampling.streaming)
    assert segments.startswith("segments: 1,200 made = 1,180 stored + 9 too old + 11 in flight; 40 stored in a replay")
    assert steps.endswith("1,408 in flight; 5,120 stored in a replay that ended with its learner")


def test_confirmed_segments_in_no_queue_count_as_lost() -> None:
    assert [as_table(STREAMED, left)["lost"] for left in (0, 6, 8, 30)] == [8, 2, 0, 0]
    assert [as_table(STREAMED, left)["waiting"] for left in (0, 6, 8, 30)] == [0, 6, 8, 8]


def test_segments_that_wait_beyond_the_missing_ones_are_reported() -> None:
    assert [as_table(STREAMED, left)["extra"] for left in (None, 8, 30)] == [None, 0, 22]
    assert "; 22 more wait in queues than are missing" in as_text(as_table(STREAMED, 30), Sampling.streaming)[0]
    assert "more wait" not in as_text(as_table(STREAMED, 8), Sampling.streaming)[0]


def test_no_segment_counts_as_lost_while_the_broker_is_away() -> None:
    found = as_table(STREAMED, left=None)
    assert (found["waiting"], found["lost"], found["missing"]) == (None, None, 8)
    assert as_text(found, Sampling.streaming)[0].endswith(
        "11 in flight (3 with actors, 8 in queues or lost: the broker is away); 2 delivered again"
    )


def test_the_account_is_two_sums_without_zero_terms() -> None:
    assert as_text(as_table(STREAMED, left=6), Sampling.streaming) == [
        "segments: 1,200 made = 1,180 learned + 9 too old + 11 in flight (3 with actors, 6 in queues, 2 lost)"
        "; 2 delivered again",
        "steps: 153,600 made = 151,000 learned + 1,192 too old + 1,408 in flight",
    ]
    assert as_text(as_table(GATHERED, left=0), Sampling.gathered) == [
        "segments: 40 made = 36 learned + 2 of rounds that were not needed + 2 in flight",
        "steps: 5,120 made = 4,608 learned + 256 of rounds that were not needed + 256 in flight",
    ]
