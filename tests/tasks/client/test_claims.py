"""Tests of claims: bodies of calls and replies in Redis are removed as soon as no process can need them."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from amqp.exceptions import MessageNacked
from kombu.exceptions import OperationalError
from kombu.serialization import dumps, loads
from support.claims import uninstall_claims
from support.in_memory import ADD, Directory, Kept, Service, client_of, declare, solver_of

from tasks import codec
from tasks.app import create_app
from tasks.client.bounded_sender import BoundedSender
from tasks.client.future import Handle
from tasks.client.long_bodies import LongBodies
from tasks.codec import claim_check
from tasks.codec.claim_check import ClaimStore
from tasks.service import Spec
from tasks.testing import InMemoryBroker
from tasks.topology import Topology
from warren.errors import ClaimError, DeadlinePassed

LONG = b"x" * 3_000_000


@pytest.fixture
def kept() -> Iterator[Kept]:
    found: Any = Kept()
    found.claims = claim_check.install(ClaimStore(found, f"{secrets.token_hex(4)}:claim:", ttl_seconds=60))
    yield found
    uninstall_claims(found.claims)


def test_a_long_call_and_its_long_answer_leave_nothing_once_the_answer_is_read(kept):
    broker = InMemoryBroker()
    client = client_of(broker, kept.claims)
    with Service(broker, ADD, claims=kept.claims, function=lambda body: body + b"!"):
        handle = client.submit(ADD, (LONG,), {}, 60.0)
        assert handle.result() == LONG + b"!"
        assert handle.result() == LONG + b"!", "a body was removed that could still be needed"
    assert kept.stored == 2 and kept.bodies == {}


def test_a_child_reads_its_long_results_if_it_was_forked_while_its_parent_read_one(kept):
    client, fetching, go_on = client_of(InMemoryBroker(), kept.claims), threading.Event(), threading.Event()
    parents, childs = (Handle(client, ADD, number, b"", None) for number in "12")
    for handle in (parents, childs):
        handle.settle(codec.encode(LONG, kept.claims))

    def get(key: str) -> bytes:
        fetching.set()
        assert go_on.wait(60.0)
        return kept.bodies[key]

    kept.get = get
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(parents.result)
        try:
            assert fetching.wait(60.0)
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)
                kept.get, status = kept.bodies.get, 1
                try:
                    status = int(childs.result() != LONG)
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            go_on.set()
        assert reading.result(60.0) == LONG


def test_an_answer_that_comes_too_late_leaves_nothing(kept):
    broker = InMemoryBroker()
    client, queue = client_of(broker, kept.claims), declare(broker, ADD)
    with pytest.raises(DeadlinePassed):
        client.submit(ADD, (b"short",), {}, 0.05).result()
    assert len(broker.waiting(queue)) == 1
    with Service(broker, ADD, claims=kept.claims, function=lambda body: LONG) as service:
        while not service.taken or kept.bodies:
            client.look_for(0.05)
    assert kept.stored == 1


def test_a_call_that_is_sent_again_keeps_its_claim(kept):
    broker = InMemoryBroker()
    client = client_of(broker, kept.claims)
    answers = iter([True, False])
    with Service(broker, ADD, claims=kept.claims, function=lambda body: len(body)) as service:
        serve = service._serve

        def once_lost(delivery: Any) -> None:
            service._lost = next(answers)
            serve(delivery)

        service._serve = once_lost  # type: ignore[method-assign]
        assert client.submit(ADD, (LONG,), {}, 60.0).result() == len(LONG)
    assert kept.stored == 1 and kept.bodies == {}


def test_a_long_body_lasts_for_longer_than_its_call_is_delayed(kept):
    later = Spec("actor.later", response=False, delays=True)
    with solver_of(InMemoryBroker(), claims=kept.claims) as solver:
        solver._directory = Directory(later)  # type: ignore[assignment]
        in_two_hours = solver.options(delay=7200.0)
        in_two_hours.call("actor.later", LONG)
        asyncio.run(in_two_hours.acall("actor.later", LONG))
    assert kept.lasts == [1000 * (7200 + 60)] * 2


def test_threads_that_release_the_same_claims_do_not_fail(kept):
    """An event loop's client does so in one thread for each answer, where an error would be the call's."""

    class Contended(deque[bytes]):
        def popleft(self) -> bytes:
            if self:
                others.append(super().popleft())  # another thread is faster
            return super().popleft()

    others: list[bytes] = []
    bodies = LongBodies(kept.claims, may_block=False)
    bodies.forgotten = Contended()
    stub = bodies.store(LONG)
    bodies.forget(stub)
    bodies.forget_all()
    assert others == [stub] and not bodies.forgotten


def test_a_body_encoded_for_many_tries_is_stored_once(kept):
    with claim_check.once() as sent:
        stubs = {codec.encode(LONG, kept.claims) for _ in range(10)}
        sent()
    assert len(stubs) == 1 and kept.stored == 1
    assert codec.decode(stubs.pop()) == LONG


def test_a_body_that_was_never_sent_is_removed(kept):
    with claim_check.once():
        codec.encode(LONG, kept.claims)
    assert kept.stored == 1 and kept.bodies == {}


def test_a_stored_result_is_not_a_claim(kept):
    codec.register()
    content_type, encoding, body = dumps({"result": LONG}, serializer=codec.STORED)
    assert kept.stored == 0
    assert loads(body, content_type, encoding, accept=[content_type]) == {"result": LONG}


def test_two_runs_in_one_process_keep_their_claims_apart(kept):
    other: Any = Kept()
    other.claims = claim_check.install(ClaimStore(other, f"{secrets.token_hex(4)}:claim:", ttl_seconds=60))
    try:
        for app_claims in (kept.claims, other.claims):
            serializer = codec.register(app_claims)
            content_type, encoding, body = dumps(LONG, serializer=serializer)
            assert loads(body, content_type, encoding, accept=[content_type]) == LONG
        assert [len(one.bodies) for one in (kept, other)] == [1, 1]
        stub = codec.encode(LONG, other.claims)
        claim_check.release(stub)
        assert [len(one.bodies) for one in (kept, other)] == [1, 1]
    finally:
        uninstall_claims(other.claims)


def test_a_claim_of_a_run_that_this_process_does_not_know_names_the_remedy(kept):
    stub = codec.encode(LONG, ClaimStore(kept, "another-run:claim:", ttl_seconds=60))
    with pytest.raises(ClaimError, match=r"has no claim store for it .*make the app of that run"):
        codec.decode(stub)


def refusing(app: Any, times: int, stopping: threading.Event | None) -> Callable[..., None]:
    """Return a `send_task` that the queue refuses `times` times; then it accepts the message, or sets `stopping`."""
    left = [times]

    def send_task(name: str, args: Any, **_: Any) -> None:
        codec.encode((args, {}, {}), app.warren_claims)
        left[0] -= 1
        if left[0] < 0 and stopping is None:
            return
        if left[0] < 0:
            stopping.set()  # type: ignore[union-attr]
        raise OperationalError("refused") from MessageNacked()

    return send_task


@pytest.mark.parametrize("taken", [True, False], ids=["taken in the end", "given up"])
def test_a_refused_segment_is_stored_once_and_forgotten_if_given_up(kept, taken):
    topology, stopping = Topology("claims"), threading.Event()
    app = create_app(topology, "memory://", "redis://127.0.0.1:1/0")
    app.warren_claims, app.warren_broker = kept.claims, InMemoryBroker()
    sender = BoundedSender(app, topology.learner_queue(), lambda: topology.learner_bound, stopping)
    app.send_task = refusing(app, 3, None if taken else stopping)
    assert sender.send("learner.learn", (LONG,)) is taken
    assert kept.stored == 1 and len(kept.bodies) == int(taken)
