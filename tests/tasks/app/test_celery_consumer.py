"""Tests of the app's Celery workers on RabbitMQ: unreadable messages, and claims of settled messages."""

import secrets
import socket
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import kombu
import numpy as np
import pytest
import redis
from celery._state import _set_task_join_will_block
from celery.worker import state as worker_state
from support.waiting import PATIENCE, until

from tasks import codec
from tasks.app import create_app
from tasks.app.dead_letters import REASON
from tasks.codec import claim_check
from tasks.topology import Topology
from tasks.worker.batching import BatchTask
from tasks.worker.pool import OneThreadPool
from workers.servers import Servers


class Running:
    """An app of a run of its own with a worker on the actor queue, in this process."""

    def __init__(self, run_name: str, broker_url: str, redis_url: str) -> None:
        self.topology = Topology(run_name)
        self.app = create_app(self.topology, broker_url, redis_url, claim_threshold=1000, prefetch=4)
        self.redis = redis.Redis.from_url(redis_url)
        self.seen: list[Any] = []
        self.go_on = threading.Event()  # tasks wait for it
        self.go_on.set()
        self.app.task(self.total, name="actor.rollout", shared=False)
        self.app.task(self.batch, name="actor.learn", base=BatchTask, batch=2, shared=False)
        with self.app.connection_for_write() as connection:
            for queue in self.topology.declared():
                queue(connection.default_channel).declare()
        self.worker = self.app.Worker(
            hostname=f"{run_name}@test",
            pool=OneThreadPool,
            concurrency=1,
            queues=[self.topology.actor_queue().name],
            without_gossip=True,
            without_mingle=True,
            quiet=True,
        )
        self.thread = threading.Thread(target=self.worker.start, daemon=True)
        self.thread.start()

    def total(self, value: Any) -> None:
        self.seen.append(np.asarray(value).sum())
        self.go_on.wait(PATIENCE)

    def batch(self, calls: list[Any]) -> list[None]:
        return [None for _ in calls]

    def claims(self) -> list[bytes]:
        return list(self.redis.scan_iter(match=f"{self.topology.key_prefix}claim:*"))

    def letters(self) -> list[Any]:
        """Take out the dead letters and return them as py-amqp messages: kombu raises for some."""
        with self.app.connection_for_read() as connection:
            name = self.topology.dead_queue("actor").name
            return list(iter(lambda: connection.default_channel.basic_get(name, no_ack=True), None))

    def dead(self) -> int:
        with self.app.connection_for_read() as connection:
            queue = self.topology.dead_queue("actor")(connection.default_channel)
            return int(queue.queue_declare(passive=True).message_count)


@pytest.fixture(scope="module")
def running(servers: Servers) -> Iterator[Running]:
    # One worker for all tests: a second one in the same process would inherit the first one's state.
    found = Running(f"test-{secrets.token_hex(6)}", servers.broker_url, servers.redis_url)
    yield found
    worker_state.should_stop = 0
    found.thread.join(PATIENCE)
    # A worker leaves this state in its process; later tests must not see it.
    worker_state.should_stop = None
    _set_task_join_will_block(False)


HEADERS = {"task": "actor.rollout", "id": "by-hand", "lang": "py"}
BATCH_HEADERS = {**HEADERS, "task": "actor.learn"}
BODY = codec.encode(((np.ones(3),), {}, {}))


def publish(running: Running, body: Any, headers: Any = HEADERS, content_type: str = codec.CONTENT_TYPE) -> None:
    """Publish a message with any body, for the rollout task or the one in `headers`."""
    with kombu.Connection(running.app.conf.broker_url) as connection:
        connection.Producer().publish(
            body,
            exchange=running.topology.actor.name,
            routing_key="actor.main",
            headers=headers,
            content_type=content_type,
            content_encoding="binary",
        )


def test_a_claim_is_forgotten_once_its_task_is_done(running: Running) -> None:
    running.app.send_task("actor.rollout", args=(np.ones(10_000),), ignore_result=True)
    until(lambda: running.seen[-1:] == [10_000])
    until(lambda: not running.claims())


def test_the_claims_of_a_batch_are_forgotten_once_it_is_done(running: Running) -> None:
    for _ in range(2):
        running.app.send_task("actor.learn", args=(np.ones(10_000),), ignore_result=True)
    until(lambda: not running.claims())


def test_an_unreadable_message_becomes_a_dead_letter_and_others_go_on(running: Running) -> None:
    before = running.dead()
    publish(running, b"WRN\x01 nonsense")
    running.app.send_task("actor.rollout", args=(np.ones(3),), ignore_result=True)
    until(lambda: running.seen[-1:] == [3])
    until(lambda: running.dead() == before + 1)


def test_a_message_whose_claim_is_gone_becomes_a_dead_letter(running: Running) -> None:
    before, seen = running.dead(), list(running.seen)
    stub = codec.encode(((np.ones(10_000),), {}, {}), running.app.warren_claims)
    running.redis.delete(*running.claims())
    publish(running, stub)
    until(lambda: running.dead() == before + 1)
    assert running.seen == seen


def test_a_redelivered_message_with_a_used_claim_counts_as_done(running: Running) -> None:
    before, seen = running.dead(), list(running.seen)
    stub = codec.encode(((np.ones(10_000),), {}, {}), running.app.warren_claims)
    claim_check.release(stub, used=True)
    publish(running, stub, {**HEADERS, "redelivered": True})
    running.app.send_task("actor.rollout", args=(np.ones(4),), ignore_result=True)
    until(lambda: running.seen == [*seen, 4])
    assert running.dead() == before


def test_a_redelivered_message_whose_claim_is_gone_is_a_dead_letter(running: Running) -> None:
    before = running.dead()
    stub = codec.encode(((np.ones(10_000),), {}, {}), running.app.warren_claims)
    running.redis.delete(*running.claims())
    publish(running, stub, {**HEADERS, "redelivered": True})
    until(lambda: running.dead() == before + 1)


def test_the_claim_of_a_dead_letter_lasts_as_long_as_the_letter(running: Running) -> None:
    running.letters()
    stub = codec.encode(((np.ones(10_000),), {}, {}), running.app.warren_claims)
    publish(running, stub, {**HEADERS, "task": "actor.nothing"})
    until(running.dead)
    (letter,) = running.letters()
    until(lambda: [running.redis.ttl(key) > 6 * 86_400 for key in running.claims()] == [True])
    assert codec.decode(letter.body)[0][0].sum() == 10_000
    running.redis.delete(*running.claims())


COMPRESSED = zlib.compress(BODY)
MALFORMED = {
    "an empty body": (b"", HEADERS, codec.CONTENT_TYPE, "its body is"),
    "an empty body of JSON": (b"", HEADERS, "application/json", "body"),
    "a number": (b"5", HEADERS, "application/json", "its body is 5, not"),
    "a body of two": (codec.encode(([], {})), HEADERS, codec.CONTENT_TYPE, "not (args, kwargs, embed)"),
    "args that are a number": (codec.encode((5, {}, {})), HEADERS, codec.CONTENT_TYPE, "its args are 5"),
    "kwargs that are a list": (codec.encode(([], [], {})), HEADERS, codec.CONTENT_TYPE, "its kwargs are list"),
    "an embed that is a text": (codec.encode(([], {}, "x")), HEADERS, codec.CONTENT_TYPE, "its embed is 'x'"),
    "a chord that is a number": (codec.encode(([], {}, {"chord": 7})), HEADERS, codec.CONTENT_TYPE, "the chord 7"),
    "no id": (BODY, {"task": "actor.rollout"}, codec.CONTENT_TYPE, "its header 'id' is None"),
    "an id that is a list": (BODY, {**HEADERS, "id": ["a"]}, codec.CONTENT_TYPE, "its header 'id' is list"),
    "a task that is a list": (BODY, {**HEADERS, "task": ["a"]}, codec.CONTENT_TYPE, "its header 'task' is list"),
    "a task nobody has": (BODY, {**HEADERS, "task": "actor.nothing"}, codec.CONTENT_TYPE, "no task 'actor.nothing'"),
    "protocol 1": (b'{"task": "actor.rollout", "id": "x", "args": [1]}', {}, "application/json", "protocol 2"),
    "no headers": (BODY, {}, codec.CONTENT_TYPE, "protocol 2"),
    "a number that expires": (BODY, {**HEADERS, "expires": 5}, codec.CONTENT_TYPE, "its header 'expires' is 5"),
    "an eta that is no moment": (BODY, {**HEADERS, "eta": "soon"}, codec.CONTENT_TYPE, "its header 'eta' is 'soon'"),
    "a time limit that is a text": (BODY, {**HEADERS, "timelimit": "x"}, codec.CONTENT_TYPE, "timelimit"),
    "retries that are a text": (BODY, {**HEADERS, "retries": "x"}, codec.CONTENT_TYPE, "retries"),
    "stamps that are a text": (
        BODY,
        {**HEADERS, "stamped_headers": ["a"], "stamps": "x"},
        codec.CONTENT_TYPE,
        "stamps",
    ),
    "a pickle": (b"cos\nsystem\n(S'true'\ntR.", HEADERS, "application/x-python-serialize", "pickle"),
    "an unknown compression": (BODY, {**HEADERS, "compression": ["x"]}, codec.CONTENT_TYPE, "it is compressed (['x'])"),
    "a compressed body": (
        COMPRESSED,
        {**HEADERS, "compression": "gzip"},
        codec.CONTENT_TYPE,
        "it is compressed ('gzip')",
    ),
}


@pytest.mark.parametrize("task", ["actor.rollout", "actor.learn"])
@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_message_is_a_dead_letter_with_a_reason_and_the_worker_goes_on(running, what, task):
    body, headers, content_type, reason = MALFORMED[what]
    running.letters()
    headers = {**headers, "task": task} if headers.get("task") == "actor.rollout" else headers
    seen = len(running.seen)
    publish(running, body, headers, content_type)
    until(lambda: running.dead())
    (letter,) = running.letters()
    assert reason in letter.headers[REASON] and (letter.body or b"") == body
    running.app.send_task("actor.rollout", args=(np.ones(5),), ignore_result=True)
    until(lambda: len(running.seen) > seen)
    assert running.thread.is_alive()


def test_invalid_remote_control_messages_are_refused_and_commands_go_on(running):
    exchange = f"{running.topology.control}.pidbox"
    with kombu.Connection(running.app.conf.broker_url) as connection:
        producer = connection.Producer()
        for body in (
            "5",
            "[]",
            "{",
            '{"method": ["x"]}',
            '{"method": "ping", "arguments": 3}',
            '{"method": "nothing"}',
        ):
            producer.publish(body, exchange=exchange, content_type="application/json", content_encoding="utf-8")
        bad_reply = '{"method": "ping", "reply_to": {"exchange": "nowhere", "routing_key": "x"}, "ticket": "t"}'
        producer.publish(bad_reply, exchange=exchange, content_type="application/json", content_encoding="utf-8")
        producer.publish("{}", exchange=exchange, content_type="application/x-unknown", content_encoding="utf-8")
        clock = {"clock": "late"}
        producer.publish('{"method": "ping"}', exchange=exchange, content_type="application/json", headers=clock)
    until(lambda: running.app.control.ping(timeout=20.0, limit=1))
    assert running.thread.is_alive()


def test_an_acknowledgement_on_a_lost_connection_is_logged_as_one_line(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.seen.clear()
    running.go_on.clear()
    running.app.send_task("actor.rollout", args=(np.ones(6),), ignore_result=True)
    until(lambda: running.seen == [6])
    consumer = running.worker.consumer
    lost = consumer.connection
    lost.connection.transport.sock.shutdown(socket.SHUT_RDWR)
    until(lambda: consumer.connection not in (None, lost))
    running.go_on.set()
    until(lambda: any("was not settled" in record.message for record in caplog.records))
    until(lambda: running.seen == [6, 6])
    (told,) = [record for record in caplog.records if "was not settled" in record.message]
    assert told.levelname == "WARNING" and told.exc_info is None and "\n" not in told.message
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]
    running.app.send_task("actor.rollout", args=(np.ones(7),), ignore_result=True)
    until(lambda: running.seen[-1:] == [7])
