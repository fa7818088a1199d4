"""Tests of tasks.codec.claim_check on a real Redis: it holds long bodies, messages carry stubs, losses are errors."""

from __future__ import annotations

import multiprocessing
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgpack
import numpy as np
import pytest
import redis
from kombu import serialization
from support.claims import uninstall_claims
from support.shared_place import shared_place
from support.waiting import PATIENCE
from support.wire_values import same

from tasks import codec
from tasks.codec import claim_check, claim_stub
from tasks.codec.claim_check import ClaimStore
from tasks.codec.serializer import decode, encode
from tasks.codec.shared_memory import SharedFolder, new_token
from warren.errors import BrokerError, ClaimError, ClaimGone, ClaimUsed, CodecError, ConfigurationError

LONG = {"obs": np.arange(300_000, dtype=np.float32), "who": "main"}  # 1.2 MB, over the default threshold
SHARED_BODY = bytes(range(256)) * 8192  # 2 MiB


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connected:
        yield connected


@pytest.fixture
def store(client: redis.Redis, run_name: str) -> Iterator[ClaimStore]:
    """Yield a store that is installed in this process during a test."""
    store = ClaimStore(client, f"{run_name}:claim:", ttl_seconds=60)
    with ExitStack() as stack:
        stack.callback(uninstall_claims, claim_check.install(store))
        yield store


@pytest.fixture
def unused_port() -> Iterator[int]:
    """Yield a port without a listener, bound so that none can start."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def claim_keys(client: redis.Redis, store: ClaimStore) -> list[bytes]:
    return list(client.scan_iter(f"{store.prefix}*"))


def decode_elsewhere(redis_url: str, prefix: str, body: bytes, answers: Any) -> None:
    claim_check.install(ClaimStore(redis.Redis.from_url(redis_url), prefix, ttl_seconds=60))
    answers.put(float(decode(body)["obs"].sum()))


def test_a_long_value_travels_as_a_stub_and_comes_back_whole(store: ClaimStore, client: redis.Redis) -> None:
    body = encode(LONG, store)
    assert len(body) < 200
    assert same(LONG, decode(body))
    (key,) = claim_keys(client, store)
    assert client.strlen(key) > 1_200_000


def test_a_claim_can_be_redeemed_by_every_subscriber_and_expires_on_its_own(
    store: ClaimStore, client: redis.Redis
) -> None:
    began = time.monotonic()
    body = encode(LONG, store)
    assert all(same(LONG, decode(body)) for _ in range(5))
    (key,) = claim_keys(client, store)
    left = client.pttl(key)
    assert 60_000 - 1000 * (time.monotonic() - began) - 1 <= left <= 60_000


def test_another_process_redeems_a_claim(store: ClaimStore, redis_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    process = spawn.Process(target=decode_elsewhere, args=(redis_url, store.prefix, encode(LONG, store), answers))
    process.start()
    assert answers.get(timeout=PATIENCE) == float(LONG["obs"].sum())
    process.join(timeout=PATIENCE)


def test_bodies_up_to_the_threshold_stay_in_the_message(client: redis.Redis, run_name: str) -> None:
    store = ClaimStore(client, f"{run_name}:", ttl_seconds=60, threshold=100)
    assert store.check_in(bytes(100)) == bytes(100)
    assert not claim_keys(client, store)
    stub = store.check_in(bytes(101))
    assert claim_stub.is_stub(stub)
    assert store.redeem(stub) == bytes(101)


def test_two_equal_bodies_are_two_claims(store: ClaimStore, client: redis.Redis) -> None:
    encode(LONG, store), encode(LONG, store)
    assert len(claim_keys(client, store)) == 2


def test_claims_work_through_kombu(store: ClaimStore) -> None:
    content_type, encoding, body = serialization.dumps(LONG, serializer=codec.register(store))
    assert len(body) < 200
    assert same(LONG, serialization.loads(body, content_type, encoding, accept={codec.CONTENT_TYPE}))
    assert same(LONG, serialization.loads(memoryview(body), content_type, encoding, accept={codec.CONTENT_TYPE}))


def test_a_claim_that_expired_says_how_to_make_it_last(store: ClaimStore, client: redis.Redis) -> None:
    body = encode(LONG, store)
    client.delete(*claim_keys(client, store))
    with pytest.raises(ClaimError, match=r"is gone; either it waited for longer than its time to live \(60 s here\)"):
        decode(body)


@pytest.mark.parametrize("damage", [b"short", bytes(1_200_080)], ids=["cut", "overwritten"])
def test_a_damaged_claim_is_never_decoded(store: ClaimStore, client: redis.Redis, damage: bytes) -> None:
    body = encode(LONG, store)
    (key,) = claim_keys(client, store)
    client.set(key, damage)
    with pytest.raises(ClaimError, match=f"is damaged: {len(damage)} bytes"):
        decode(body)


def test_one_changed_bit_is_noticed(store: ClaimStore, client: redis.Redis) -> None:
    body = encode(LONG, store)
    (key,) = claim_keys(client, store)
    client.setbit(key, 5_000_003, 1 - client.getbit(key, 5_000_003))
    with pytest.raises(ClaimError, match="is damaged"):
        decode(body)


def test_a_stub_cannot_name_keys_outside_the_run(store: ClaimStore, client: redis.Redis, run_name: str) -> None:
    secret = encode("not yours")
    client.set(f"{run_name}:other", secret, px=60_000)
    stub = b"WRC\x01" + msgpack.packb((f"{run_name}:other", len(secret), zlib.crc32(secret)))
    with pytest.raises(ClaimError, match="has no claim store for it"):
        decode(stub)


def test_a_claim_for_a_claim_is_refused(store: ClaimStore, client: redis.Redis) -> None:
    stub = encode(LONG, store)
    client.set(f"{store.prefix}loop", stub, px=60_000)
    with pytest.raises(CodecError, match="a message begins with"):
        decode(b"WRC\x01" + msgpack.packb((f"{store.prefix}loop", len(stub), zlib.crc32(stub))))


def test_a_key_of_another_type_is_a_claim_error(store: ClaimStore, client: redis.Redis) -> None:
    client.hset(f"{store.prefix}hash", "a", "b")
    client.expire(f"{store.prefix}hash", 60)
    with pytest.raises(ClaimError, match="Redis refused to fetch claim"):
        decode(b"WRC\x01" + msgpack.packb((f"{store.prefix}hash", 1, 1)))


def test_without_a_store_long_bodies_travel_in_the_message() -> None:
    body = encode(LONG)
    assert len(body) > 1_200_000
    assert same(LONG, decode(body))


def test_a_stub_in_a_process_without_a_store_names_the_remedy() -> None:
    stub = b"WRC\x01" + msgpack.packb(("run:claim:1", 5, 1))
    with pytest.raises(ClaimError, match=r"'run:claim:1' \(5 bytes\) and this process has no claim store for it"):
        decode(stub)


@pytest.mark.parametrize(
    "stub",
    [
        b"WRC\x01",
        b"WRC\x01\xc1",
        b"WRC\x01" + msgpack.packb(("key", 1)),
        b"WRC\x01" + msgpack.packb(("key", "1", 2)),
        b"WRC\x01" + msgpack.packb((b"key", 1, 2)),
        b"WRC\x01" + msgpack.packb(("key", 1, 2)) + b"more",
        b"WRC\x01" + msgpack.packb(("k" * 2000, 1, 2)),
        b"WRC\x01\xdd\xff\xff\xff\xff",
        b"WRC\x01\x93\xa1\xff\x01\x01",
    ],
    ids=lambda stub: f"{stub[:20]!a}",
)
def test_a_malformed_stub_is_a_codec_error(stub: bytes) -> None:
    for buffer in (stub, bytearray(stub), memoryview(stub)):
        with pytest.raises(CodecError, match="are not a claim check"):
            decode(buffer)


def test_an_absent_redis_is_a_broker_error(run_name: str, unused_port: int) -> None:
    client = redis.Redis(port=unused_port, retry=None, socket_connect_timeout=5)
    store = ClaimStore(client, f"{run_name}:", ttl_seconds=60, threshold=0)
    with pytest.raises(BrokerError, match=r"Redis went away, so cannot store 9 bytes as claim .* check redis_url"):
        store.check_in(b"some body")
    with pytest.raises(BrokerError, match="Redis went away, so cannot fetch claim"):
        store.redeem(b"WRC\x01" + msgpack.packb((f"{run_name}:x", 1, 1)))


def test_every_wrong_setting_of_a_store_is_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        ClaimStore(redis.Redis(decode_responses=True), "", ttl_seconds=0, threshold=-1)
    assert len(refusal.value.problems) == 4


@pytest.mark.servers
def test_a_released_claim_is_gone(store: claim_check.ClaimStore) -> None:
    stub = store.check_in(b"x" * 3_000_000)
    store.release(stub)
    with pytest.raises(ClaimError, match="is gone"):
        store.redeem(stub)


@pytest.mark.servers
def test_a_claim_made_within_time_to_live_expires_sooner(store: claim_check.ClaimStore) -> None:
    with claim_check.time_to_live(30.0):
        store.check_in(b"x" * 3_000_000)
    (key,) = store.client.keys(f"{store.prefix}*")
    assert 0 < store.client.pttl(key) <= 30_000


def test_a_used_claim_is_told_apart_from_an_expired_one(store, client):
    body, other = encode(LONG, store), encode(LONG, store)
    claim_check.release(body, used=True)
    claim_check.release(other)
    assert not claim_keys(client, store)
    with pytest.raises(ClaimUsed, match="was removed when its message had been dealt with"):
        decode(body)
    with pytest.raises(ClaimGone) as caught:
        decode(other)
    assert not isinstance(caught.value, ClaimUsed)


def test_only_the_newest_claims_of_dead_letters_are_kept(store, client, monkeypatch):
    monkeypatch.setattr(claim_check, "MOST_KEPT", 2)
    bodies = [store.check_in(bytes([number]) * 1_200_000) for number in range(3)]
    for body in bodies:
        claim_check.keep(body)
    left = sorted(client.ttl(key) for key in claim_keys(client, store))
    assert left[0] <= 60 and all(seconds > 6 * 86_400 for seconds in left[1:])
    claim_check.keep(b"no claim")


@pytest.fixture
def in_shared_memory(store: ClaimStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SharedFolder, bytes]]:
    """Yield a worker's folder, and the stub of a body in it."""
    with shared_place(monkeypatch):
        folder = SharedFolder(new_token())
        assert folder.make()
        with claim_check.shared(lambda: folder):
            stub = store.check_in(SHARED_BODY)
        assert len(list(folder.path.iterdir())) == 1
        yield folder, stub


def test_a_dead_letters_body_moves_from_shared_memory_to_redis(store, client, in_shared_memory):
    folder, stub = in_shared_memory
    assert not claim_keys(client, store)
    claim_check.keep(stub)
    assert not list(folder.path.iterdir())
    (key,) = claim_keys(client, store)
    assert client.ttl(key) > 6 * 86_400
    folder.path.rmdir()  # its worker has ended
    assert [claim_check.redeem(stub) for _ in range(2)] == [SHARED_BODY] * 2


def test_a_kept_body_expires_even_if_its_keeper_dies_midway(store, client, in_shared_memory, monkeypatch):
    def die(transaction: bool = True) -> None:
        raise redis.ConnectionError("the process ends here")

    monkeypatch.setattr(store.client, "pipeline", die)
    claim_check.keep(in_shared_memory[1])
    (key,) = claim_keys(client, store)
    assert client.ttl(key) > 6 * 86_400
