"""A call as the frames that are written to the broker."""

from __future__ import annotations

import time

from tasks.amqp.messages import DIRECT_REPLY, Envelope, expires_at
from tasks.brokers import Connection
from tasks.client.confirms import Confirms
from tasks.client.future import Handle
from tasks.topology import Topology

MOST_KEPT = 1000  # envelopes, of a caller that computes each deadline anew


class CallFrames:
    """Writes calls for one connection after another; what calls of a service have in common is made once for each."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._envelopes: dict[tuple[str, float | None, int], Envelope] = {}

    def forget(self) -> None:
        """Another connection is used from now on."""
        self._envelopes.clear()

    def of(self, link: Connection, call: Handle, confirms: Confirms | None) -> bytes:
        """The frames of `call` on `link`; one-way, on the channel of `confirms`."""
        envelope = self._envelopes.get((call.spec.name, call.time_to_live, call.retries))
        if envelope is None:
            envelope = self._envelope(link, call, confirms)
        left = min(call.deadline - time.monotonic(), call.time_to_live or 0.0) if call.retries else call.time_to_live
        return envelope.write(call.id, expires_at(left or 0.0) if envelope.expires else b"", call.args_body)

    def _envelope(self, link: Connection, call: Handle, confirms: Confirms | None) -> Envelope:
        spec = call.spec
        if len(self._envelopes) > MOST_KEPT:
            self._envelopes.clear()
        channel = link.channel_id if spec.response or confirms is None else confirms.channel_id
        envelope = self._envelopes[(spec.name, call.time_to_live, call.retries)] = Envelope(
            channel,
            link.frame_max,
            self._topology.service.name,
            spec.name,
            reply_to=DIRECT_REPLY if spec.response else "",
            time_to_live=call.time_to_live,
            retries=call.retries,
            persistent=not spec.response,
        )
        return envelope
