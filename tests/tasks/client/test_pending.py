"""The table of pending calls: each call ends once, whoever asks."""

from __future__ import annotations

import threading
from typing import Any

from in_memory import ADD, PUSH

from tasks.client.future import Handle
from tasks.client.pending import PendingCalls


def call(call_id: str, one_way: bool = False) -> Handle:
    waiter: Any = None
    return Handle(waiter, PUSH if one_way else ADD, call_id, b"", None)


def test_one_way_calls_are_counted_until_they_are_taken_out_and_never_twice():
    calls = PendingCalls()
    push = call("push", one_way=True)
    calls.add(push)
    calls.add(push)
    calls.add(call("add"))
    assert (calls.unconfirmed, len(calls)) == (1, 2)
    assert calls.pop("push") is push and calls.pop("push") is None
    assert (calls.unconfirmed, len(calls)) == (0, 1)


def test_calls_come_and_go_in_some_threads_while_others_look_at_all():
    calls, popped, stop = PendingCalls(), [list[Handle]() for _ in range(3)], threading.Event()

    def pop(mine: list[Handle]) -> None:
        while not stop.is_set() or len(calls):
            for one in calls.all():
                if (taken := calls.pop(one.id)) is not None:
                    mine.append(taken)

    threads = [threading.Thread(target=pop, args=(mine,)) for mine in popped]
    for thread in threads:
        thread.start()
    for number in range(3000):
        calls.add(call(str(number), one_way=number % 2 == 0))
    stop.set()
    for thread in threads:
        thread.join()
    ids = [one.id for mine in popped for one in mine]
    assert len(ids) == len(set(ids)) == 3000
    assert calls.unconfirmed == 0


def test_only_what_is_out_of_the_brokers_hands_and_due_is_to_be_sent():
    calls = PendingCalls()
    sent, due, later = call("sent"), call("due"), call("later")
    due.resend_at, later.resend_at = 1.0, 3.0
    for one in (sent, due, later):
        calls.add(one)
    assert calls.unsent(by=2.0) == [due]
