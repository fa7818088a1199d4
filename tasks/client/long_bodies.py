"""Bodies of calls: packed, and those too long for a message stored in Redis for as long as they are needed."""

from __future__ import annotations

from collections import deque
from typing import Any

from tasks.amqp.messages import NO_LINKS
from tasks.codec import claim_check, claim_stub
from tasks.codec.claim_check import ClaimStore
from tasks.codec.encoder import pack


class LongBodies:
    """Long bodies of one client. `claims` None: its app has no store, and every body travels in its message.

    `may_block`: without it `forget` returns at once. `store` and `forget_all` use Redis: an event loop calls them from
    another thread.
    """

    def __init__(self, claims: ClaimStore | None, may_block: bool) -> None:
        self._claims, self._may_block = claims, may_block
        self.forgotten: deque[bytes] = deque()  # claim checks that are no longer needed, and not yet reported to Redis

    def pack(self, args: Any, kwargs: Any) -> bytes:
        """Encode the body of a call. Raises CodecError."""
        return pack((args, kwargs, NO_LINKS))

    def is_long(self, body: bytes) -> bool:
        """Return whether `store` has to write it to Redis, which may take a while."""
        return self._claims is not None and len(body) > self._claims.threshold

    def store(self, body: bytes, delay: float = 0.0) -> bytes:
        """Store a long body; return its claim check, or a short body itself. Raises ClaimError and BrokerError.

        `delay`: s that the call waits before its worker gets it; the claim lasts as much longer.
        """
        if self._claims is None:
            return body
        if not delay:
            return self._claims.check_in(body)
        with claim_check.time_to_live(self._claims.ttl_seconds + delay):
            return self._claims.check_in(body)

    def forget(self, body: bytes) -> None:
        """Release the claim behind `body`, at once or by `forget_all`."""
        if not claim_stub.is_stub(body):
            return
        if self._may_block:
            claim_check.release(body)
        else:
            self.forgotten.append(body)

    def forget_all(self) -> None:
        """Release the claims that `forget` could not wait for."""
        while self.forgotten:
            try:
                body = self.forgotten.popleft()
            except IndexError:  # another thread was faster
                return
            claim_check.release(body)


class PlainBodies:
    """Bodies of a client whose messages Celery's serializer writes; it stores long ones when they are sent."""

    def __init__(self) -> None:
        self.forgotten: deque[bytes] = deque()

    def pack(self, args: Any, kwargs: Any) -> Any:
        """Return (args, kwargs), once it is sure that they can be packed. Raises CodecError."""
        pack((args, kwargs))
        return args, kwargs

    def is_long(self, body: Any) -> bool:
        """Return False: `store` takes no time."""
        return False

    def store(self, body: Any, delay: float = 0.0) -> Any:
        """Return `body` itself."""
        return body

    def forget(self, body: Any) -> None:
        """Do nothing: its worker forgets it."""

    def forget_all(self) -> None:
        """Do nothing: there is nothing to forget."""
