"""Tests of segments on their way to the queue: they take room there, except for the thread that sends them."""

from __future__ import annotations

import threading

from workers.rollout.sending.leaving import Leaving


def test_a_segment_that_has_to_be_sent_again_does_not_take_its_own_room() -> None:
    leaving, seen = Leaving(), []
    assert leaving.begin()
    other = threading.Thread(target=lambda: seen.append(leaving.others()))
    other.start()
    other.join()
    assert (leaving.others(), seen) == (0, [1])
    assert not leaving.begin(), "sent again, since the broker went away before it had it"
    assert leaving.others() == 0
    leaving.end()
    leaving.end()
    assert leaving.others() == 0 and leaving.begin()
