"""Writing to the broker: a worker's replies, acknowledgements and refusals, in as few writes as possible."""

from __future__ import annotations

from typing import Any

from tasks import codec
from tasks.amqp import frames
from tasks.amqp.frames import Properties
from tasks.amqp.messages import FAILED, LOST, Replies
from tasks.app.outcome import ENDS_WORKER, Outcome, failed
from tasks.brokers import Connection
from tasks.codec import claim_check, claim_stub
from tasks.codec.claim_check import ClaimStore


class Outbox:
    """Gathers what is to be written on one connection until `flush`.

    `held`: tags of messages that are neither acknowledged nor refused yet, in order of delivery.
    """

    def __init__(self, link: Connection, claims: ClaimStore | None) -> None:
        self.link, self._store = link, claims
        self.held: dict[int, None] = {}
        self._replies = Replies(link.channel_id, link.frame_max)
        self._messages: list[bytes] = []
        self._refusals: list[bytes] = []
        self._acks: list[int] = []
        self._claims: list[bytes] = []  # claim checks to release once their messages are acknowledged

    @property
    def pending(self) -> bool:
        """Return whether there is something to write."""
        return bool(self._messages or self._acks or self._refusals)

    def ack(self, tag: int, body: bytes = b"") -> None:
        """Acknowledge message `tag`; `body` is given where it may be a claim check whose claim nobody else needs."""
        self.held.pop(tag, None)
        self._acks.append(tag)
        if claim_stub.is_stub(body):
            self._claims.append(body)

    def reject(self, tag: int, requeue: bool) -> None:
        """Put message `tag` back into its queue, or among the dead letters where its queue has those."""
        self.held.pop(tag, None)
        self._refusals.append(frames.reject(self.link.channel_id, tag, requeue))

    def reply(self, properties: Properties, outcome: Any) -> None:
        """Send `outcome` to the caller, which waits for it on a connection of ours."""
        if not isinstance(outcome, Outcome):
            try:
                body = codec.encode(outcome, self._store)
            except ENDS_WORKER:
                raise
            except BaseException as error:  # a result outside the wire format is the service's failure
                outcome = failed(error)
            else:
                self._messages += self._replies.write(properties.reply_to, properties.correlation_id, body)
                return
        body = codec.encode((outcome.kind, outcome.message, outcome.traceback))  # short: see outcome.LONGEST
        self._messages += self._replies.write(properties.reply_to, properties.correlation_id, body, FAILED)

    def reply_lost(self, properties: Properties) -> None:
        """Tell the caller that the worker that had its call before this one is gone."""
        self._messages += self._replies.write(properties.reply_to, properties.correlation_id, b"", LOST)

    def publish(self, exchange: str, key: str, properties: bytes, body: bytes) -> None:
        """Publish a message unchanged to `exchange`."""
        self._messages.append(frames.publish_method(self.link.channel_id, exchange, key))
        self._messages += frames.content(self.link.channel_id, properties, body, self.link.frame_max)

    def flush(self) -> None:
        """Write everything: messages first, so that what is acknowledged has its answer on the way."""
        if self._messages:
            self.link.publish(b"".join(self._messages))
            self._messages.clear()
        if self._acks or self._refusals:
            # Refusals first: an acknowledgement may stand for all messages up to its own.
            data = self._refusals
            if self._acks:
                data += frames.acks(self.link.channel_id, self._acks, self.held)
            self.link.send(b"".join(data))
            self._acks.clear()
            self._refusals.clear()
        if self._claims:
            for stub in self._claims:
                claim_check.release(stub, used=True)
            self._claims.clear()
