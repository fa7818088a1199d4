"""Claim checks: a body too long for the broker waits in Redis, and the message carries only what is needed to get it.

RabbitMQ 4 refuses messages over 16 MiB, and every broker is slower with long ones. A claim is read any number of times
(a fanout exchange delivers it to every subscriber). It is removed when the one message that carries it has been
acknowledged (`release`); else it expires by its time to live. That time is short for events (`time_to_live`), of which
only the newest is of use. A claim of a call belongs to its caller, which may resend it; a claim of an answer is removed
when the
answer is read. A dead letter's claim is kept for as long as the letter (`keep`).

Where the sender shares memory with the reader of the message (`shared`), the bytes wait there and not in Redis.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import redis
from celery.utils.log import get_logger

from tasks.codec import claim_stub
from tasks.codec.shared_memory import SharedFolder
from warren.errors import BrokerError, ClaimError, ClaimGone, ClaimUsed, CodecError, ConfigurationError

logger = get_logger(__name__)

THRESHOLD = 1 << 20  # bytes; the longest body that travels in its message
LONGEST = 512 << 20  # bytes; Redis stores no longer string (proto-max-bulk-len)
USED_FOR = 900  # s for which a claim is remembered as used, after its message was dealt with
MOST_KEPT = 100  # claims of a run's dead letters that are kept, the newest


class ClaimStore:
    """The claims of one run: Redis keys that begin with `prefix`, each kept for `ttl_seconds`.

    `ttl_seconds` has to exceed the longest time that a message may wait in a queue. Dead letters wait for longer: their
    claims are kept for `kept_seconds`.
    Bodies of up to `threshold` bytes are left alone. `client` must answer bytes (decode_responses=False). Safe to use
    from any thread, and after a fork.
    """

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        ttl_seconds: float,
        threshold: int = THRESHOLD,
        kept_seconds: float = 7 * 86_400.0,
    ) -> None:
        problems = []
        if not prefix:
            problems.append("a claim store needs a key prefix, so that no message can name the keys of others")
        if ttl_seconds < 0.001:
            problems.append(f"ttl_seconds={ttl_seconds} leaves no time to fetch a claim; use an hour or so")
        if threshold < 0:
            problems.append(f"threshold={threshold} is negative; use 0 to check in every body")
        if client.get_encoder().decode_responses:
            problems.append("the client of a claim store decodes responses to str; make it with decode_responses=False")
        if problems:
            raise ConfigurationError(problems)
        self.client, self.prefix, self.ttl_seconds, self.threshold = client, prefix, ttl_seconds, threshold
        self.kept_seconds = kept_seconds
        self._used, self._kept = f"{prefix.removesuffix(':')}-used:", f"{prefix.removesuffix(':')}-kept"
        self._quiet_until = 0.0  # until then no mark of use is written, since Redis is away: a mark is not worth a wait

    def check_in(self, body: bytes) -> bytes:
        """Store a long body in Redis or shared memory; return the stub of its claim, or a short body itself.

        Raises ClaimError when Redis refuses the bytes, BrokerError when it cannot be reached.
        """
        if len(body) <= self.threshold:
            return body
        made = _once.get()
        for known, its_stub in made or ():
            if known == body:
                return its_stub
        ttl_seconds = _ttl.get() or self.ttl_seconds
        if len(body) > LONGEST:
            raise ClaimError(
                f"a body of {len(body)} bytes is longer than a Redis string may be ({LONGEST}); send it in parts"
            )
        shared = self._share(body)
        if shared is not None:
            key, checksum = shared, 0  # nothing but this host's memory is between sender and reader
        else:
            key, checksum = f"{self.prefix}{os.urandom(16).hex()}", zlib.crc32(body)
            with self._redis_trouble(f"store {len(body)} bytes as claim {key!r}"):
                self.client.set(key, body, px=int(ttl_seconds * 1000))
        stub = claim_stub.make(key, len(body), checksum)
        if made is not None:
            made.append((body, stub))
        return stub

    def _share(self, body: bytes) -> str | None:
        """Write to memory that the reader shares; return the key, or None without such memory, or without room."""
        folder = _place.get()()
        name = None if folder is None else folder.write(body)
        return None if folder is None or name is None else self.prefix + claim_stub.shared_key(folder, name)

    def redeem(self, stub: bytes | bytearray | memoryview) -> bytes | memoryview:
        """Fetch the body that `stub` stands for; the claim stays for other receivers of the stub.

        Raises CodecError for bytes that are not a stub, ClaimGone for a claim that is gone, ClaimError for one that is
        damaged or of another run, BrokerError when Redis cannot be reached.
        """
        key, size, checksum = claim_stub.read(stub)
        if not key.startswith(self.prefix):
            raise ClaimError(
                f"claim {key!r} is not of this run, whose claims begin with {self.prefix!r}; "
                "give sender and receiver the same run name"
            )
        if shared := claim_stub.in_shared_memory(key.removeprefix(self.prefix)):
            folder, name = shared
            try:
                return folder.map(name, size)
            except ClaimGone as error:
                gone = str(error)
        else:
            gone = (
                f"claim {key!r} ({size} bytes) is gone; either it waited for longer than its time to live "
                f"({self.ttl_seconds:g} s here), so raise that or drain the queue sooner, or Redis evicted it, "
                "so set maxmemory-policy to noeviction"
            )
        with self._redis_trouble(f"fetch claim {key!r}"):
            body: Any = self.client.get(key)
            used = body is None and self.client.exists(self._used_key(key))
        if used:
            raise ClaimUsed(f"claim {key!r} ({size} bytes) was removed when its message had been dealt with")
        if body is None:
            raise ClaimGone(gone)
        if shared:
            return bytes(body)  # kept for a dead letter
        if len(body) != size or zlib.crc32(body) != checksum:
            raise ClaimError(
                f"claim {key!r} is damaged: {len(body)} bytes of checksum {zlib.crc32(body):#010x}, where {size} of "
                f"{checksum:#010x} were stored; look for another program that writes keys under {self.prefix!r}"
            )
        return bytes(body)

    def release(self, stub: bytes | bytearray | memoryview, used: bool = False) -> None:
        """Remove the claim, since its only message has been dealt with. Raises nothing: a claim expires by itself.

        `used`: remember that for a while, so that the message is recognised if it comes again.
        """
        try:
            key, _, _ = claim_stub.read(stub)
            if not key.startswith(self.prefix):
                return
            shared = claim_stub.in_shared_memory(key.removeprefix(self.prefix))
            if shared:
                folder, name = shared
                folder.unlink(name)
            if shared and (not used or time.monotonic() < self._quiet_until):
                return
            with self.client.pipeline(transaction=False) as pipe:
                if used:
                    pipe.set(self._used_key(key), b"", ex=USED_FOR)
                pipe.unlink(key)
                pipe.execute()
        except redis.RedisError as error:
            self._quiet_until = time.monotonic() + 1.0
            logger.debug("a claim stays until its time to live has passed: %s", error)
        except (CodecError, ClaimError) as error:
            logger.debug("a claim stays until its time to live has passed: %s", error)

    def keep(self, stub: bytes | bytearray | memoryview) -> None:
        """Keep the claim of a dead letter for `kept_seconds`, and only the newest MOST_KEPT. Raises nothing."""
        try:
            key, size, _ = claim_stub.read(stub)
            if not key.startswith(self.prefix):
                return
            if shared := claim_stub.in_shared_memory(key.removeprefix(self.prefix)):
                folder, name = shared
                self.client.set(key, bytes(folder.map(name, size)), ex=int(self.kept_seconds))
                folder.unlink(name)
            with self.client.pipeline(transaction=False) as pipe:
                pipe.expire(key, int(self.kept_seconds))
                pipe.lpush(self._kept, key)
                pipe.expire(self._kept, int(self.kept_seconds))
                pipe.lrange(self._kept, MOST_KEPT, -1)
                pipe.ltrim(self._kept, 0, MOST_KEPT - 1)
                too_many = pipe.execute()[3]
                for old in too_many:
                    pipe.pexpire(old, int(self.ttl_seconds * 1000))
                pipe.execute()
        except (CodecError, ClaimError, redis.RedisError) as error:
            logger.warning("the body of a dead letter may be gone before it: %s", error)

    def _used_key(self, key: str) -> str:
        return self._used + key.removeprefix(self.prefix)

    @contextmanager
    def _redis_trouble(self, deed: str) -> Iterator[None]:
        try:
            yield
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise BrokerError(f"Redis went away, so cannot {deed}: {error}; check redis_url and the server") from error
        except redis.RedisError as error:
            raise ClaimError(f"Redis refused to {deed}: {error}; check its memory limit and permissions") from error


Made = list[tuple[bytes, bytes]]  # bodies that were checked in, with their stubs
_ttl: ContextVar[float | None] = ContextVar("time_to_live", default=None)
_once: ContextVar[Made | None] = ContextVar("once", default=None)
_place: ContextVar[Callable[[], SharedFolder | None]] = ContextVar("shared", default=lambda: None)
_stores: dict[str, ClaimStore] = {}  # this process's, by prefix: each app of a run has one


def install(store: ClaimStore) -> ClaimStore:
    """Use `store` for the claims of its run from now on; return it."""
    _stores[store.prefix] = store
    return store


def _store_of(key: str) -> ClaimStore | None:
    """Return the store of the run whose claim has that key."""
    return next((store for prefix, store in _stores.items() if key.startswith(prefix)), None)


@contextmanager
def time_to_live(seconds: float) -> Iterator[None]:
    """Let claims made in this block by this thread expire after `seconds`, not the store's time to live."""
    before = _ttl.set(seconds)
    try:
        yield
    finally:
        _ttl.reset(before)


@contextmanager
def shared(folder: Callable[[], SharedFolder | None]) -> Iterator[None]:
    """Put bodies that this thread checks in within the block into the folder that `folder` returns, if they fit."""
    before = _place.set(folder)
    try:
        yield
    finally:
        _place.reset(before)


@contextmanager
def once(made: Made | None = None) -> Iterator[Callable[[], None]]:
    """Store each body that this thread checks in within the block once, however often it tries to send it.

    Call the function that it yields once the message is sent; otherwise the claims are released at the end. They stay
    if the caller gave `made`, the claims of earlier tries of this message; the caller then keeps `made` for the next
    try, or calls `forget`.
    """
    claims = [] if made is None else made
    before = _once.set(claims)
    sent = False

    def told() -> None:
        nonlocal sent
        sent = True

    try:
        yield told
    finally:
        _once.reset(before)
        if sent:
            claims.clear()
        elif made is None:
            forget(claims)


def forget(made: Made) -> None:
    """Release the claims of a message that will not be sent any more."""
    while made:
        release(made.pop()[1])


def release(body: bytes | bytearray | memoryview, used: bool = False) -> None:
    """Remove the claim behind the body of an acknowledged message; does nothing for a body that is not a stub."""
    store = _store_behind(body)
    if store is not None:
        store.release(body, used)


def keep(body: bytes | bytearray | memoryview) -> None:
    """Keep the claim behind the body of a dead letter; does nothing for a body that is not a stub."""
    store = _store_behind(body)
    if store is not None:
        store.keep(body)


def _store_behind(body: bytes | bytearray | memoryview) -> ClaimStore | None:
    if claim_stub.is_stub(body):
        with suppress(CodecError):
            return _store_of(claim_stub.read(body)[0])
    return None


def redeem(stub: bytes | bytearray | memoryview) -> bytes | memoryview:
    """Fetch a body from the store of the claim's run. Raises ClaimError where none is installed."""
    key, size, _ = claim_stub.read(stub)
    store = _store_of(key)
    if store is None:
        runs = ", ".join(map(repr, _stores)) or "none"
        raise ClaimError(
            f"the message is a claim check for {key!r} ({size} bytes) and this process has no claim store for it "
            f"(it has: {runs}); make the app of that run with tasks.app.create_app, and give both sides one run name"
        )
    return store.redeem(stub)
