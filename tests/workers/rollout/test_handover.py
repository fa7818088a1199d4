"""Tests of sending beside playing: playing waits for the broker only if it must, and confirmed segments were sent."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import until

from warren.errors import BrokerError
from workers.config.schema import Config, EnvConfig
from workers.rollout import actor as worker
from workers.rollout import actor_process
from workers.rollout.sending.handover import SendingThread
from workers.runtime.segment_ledger import Segment

WITHIN = 60.0  # s, on a busy machine


def room() -> bool:
    return True


def test_playing_goes_on_while_one_segment_is_being_sent_and_another_waits() -> None:
    stopping, may_send, sent = threading.Event(), threading.Semaphore(0), []

    def send(segment: dict[str, Any], leaving: Callable[[], None]) -> bool:
        assert may_send.acquire(timeout=WITHIN)
        sent.append(segment["number"])
        return True

    sending = SendingThread(send, stopping, room)
    assert sending.give({"number": 0}) and sending.give({"number": 1})
    assert sent == [], "two were handed over, and none has been sent"
    third = threading.Thread(target=lambda: sending.give({"number": 2}) and sending.give({"number": 3}))
    third.start()
    may_send.release(2)
    third.join(WITHIN)
    assert not third.is_alive()
    may_send.release(2)
    while len(sent) < 4:
        assert sending._threads[0].is_alive()
    stopping.set()
    sending.end()
    assert sent == [0, 1, 2, 3]


def test_a_stop_waits_for_the_segment_that_is_being_sent_and_drops_those_that_wait() -> None:
    stopping, begun, go_on, sent = threading.Event(), threading.Event(), threading.Event(), []

    def send(segment: dict[str, Any], leaving: Callable[[], None]) -> bool:
        begun.set()
        assert go_on.wait(WITHIN)
        sent.append(segment["number"])
        return True

    sending = SendingThread(send, stopping, room)
    assert sending.give({"number": 0}) and begun.wait(WITHIN) and sending.give({"number": 1})
    stopping.set()
    assert not sending.give({"number": 2})
    go_on.set()
    sending.end()
    assert sent == [0]


def test_nothing_is_collected_while_the_receiver_is_full() -> None:
    stopping, full, made_room, looking = threading.Event(), [True], threading.Semaphore(0), threading.Event()

    def found() -> bool:
        if full[0]:
            looking.set()
            assert made_room.acquire(timeout=WITHIN)
            return False
        return True

    sending = SendingThread(lambda segment, leaving: not full[0], stopping, found)
    for _ in range(3):
        looking.clear()
        assert sending.give({}) and looking.wait(WITHIN)
        waiting = threading.Thread(target=sending.wait_for_room)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive(), "the receiver has no room"
        made_room.release()
        waiting.join(WITHIN)
        assert not waiting.is_alive()
    full[0] = False
    assert sending.give({})
    sending.wait_for_room()
    assert sending._free.wait(WITHIN) and not sending._throttled
    sending.wait_for_room()  # there is room, so it returns at once
    stopping.set()
    sending.end()


def test_a_segment_on_its_way_to_a_far_receiver_holds_up_no_other() -> None:
    stopping, arrived, sent, together = threading.Event(), threading.Event(), [], [0]

    def send(segment: dict[str, Any], leaving: Callable[[], None]) -> bool:
        together[0] += 1
        leaving()
        if together[0] == 3:
            arrived.set()  # all of them at once
        assert arrived.wait(WITHIN)
        sent.append(segment["number"])
        return True

    sending = SendingThread(send, stopping, room)
    for number in range(5):
        assert sending.give({"number": number})
    stopping.set()
    sending.end()
    assert set(sent) >= {0, 1, 2}


def test_only_one_segment_looks_for_room() -> None:
    stopping, looking, found = threading.Event(), [0], threading.Event()

    def send(segment: dict[str, Any], leaving: Callable[[], None]) -> bool:
        looking[0] += 1
        assert found.wait(WITHIN)
        return False

    sending = SendingThread(send, stopping, room)
    assert sending.give({}) and sending.give({})
    third = threading.Thread(target=sending.give, args=({},))
    third.start()
    until(lambda: looking[0])
    third.join(0.3)
    assert third.is_alive() and looking[0] == 1
    found.set()
    third.join(WITHIN)
    stopping.set()
    sending.end()


def test_a_sender_that_fails_ends_playing_with_its_own_error() -> None:
    def send(segment: dict[str, Any], leaving: Callable[[], None]) -> bool:
        raise BrokerError("the broker has been away for 120 s")

    sending = SendingThread(send, threading.Event(), room)
    with pytest.raises(BrokerError, match="away for 120 s"):
        for number in range(100):
            sending.give({"number": number})
    with pytest.raises(BrokerError, match="away for 120 s"):
        sending.end()


class Actor:
    """A streaming actor without servers; its sender raises `refusing` from the fourth segment on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusing: Exception | None = None) -> None:
        self.sent: list[int] = []
        self.made: list[Segment] = []
        self.confirmed: list[Segment] = []
        self.stopped = threading.Event()
        outer = self

        class Sender:
            found_room = True

            def __init__(self, *_: Any) -> None: ...

            def wait_for_room(self, enough: Callable[[bool], bool]) -> None: ...

            def send(self, name: str, args: tuple[dict[str, Any]], looked: Callable[[], None]) -> bool:
                looked()
                number = args[0]["number"]  # several threads send
                if number < 3:
                    outer.sent.append(number)
                    return True
                if refusing is not None:
                    raise refusing
                outer.role.stopping.set()
                return False

        monkeypatch.setattr(worker, "BoundedSender", Sender)
        monkeypatch.setattr(worker, "SegmentsWaiting", lambda session: SimpleNamespace(share=lambda: 1.0))
        monkeypatch.setattr(actor_process, "stop_worker", self.stopped.set)
        session: Any = SimpleNamespace(
            app=SimpleNamespace(task=lambda *_, **__: None), pool=None, redis=None,
            topology=SimpleNamespace(key_prefix="", learner_queue=lambda: None),
            ledger=SimpleNamespace(make=self.made.append, confirm=self.confirmed.append),
        )  # fmt: skip
        config = Config(trial="t", run="r", env=EnvConfig(id="CartPole-v1", num_envs=2), unroll_length=8)
        self.role = worker.ActorRole(config, session)
        monkeypatch.setattr(self.role.weights, "wait_for", lambda *_: True)
        self.role._stream()


def test_an_actor_confirms_all_sent_segments_and_logs_its_times(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, one_thread: None
) -> None:
    with caplog.at_level("INFO"):
        actor = Actor(monkeypatch)
    assert sorted(actor.sent) == sorted(segment.number for segment in actor.confirmed) == [0, 1, 2]
    assert {*actor.confirmed} < {*actor.made} and {one.steps for one in actor.made} == {16}
    assert actor.role.failure is None and not actor.stopped.is_set()
    for part in ("collect", "environments", "policy", "wait for the sender", "send"):
        assert part in caplog.text


def test_an_actor_ends_with_its_senders_error(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    actor = Actor(monkeypatch, refusing=BrokerError("the broker has been away for 120 s"))
    assert sorted(segment.number for segment in actor.confirmed) == [0, 1, 2]
    assert str(actor.role.failure) == "the broker has been away for 120 s" and actor.stopped.is_set()
