"""A call as the frames that are written to the broker."""

from __future__ import annotations

from tasks.amqp.messages import DIRECT_REPLY, Envelope, expires_at
from tasks.client.future import Handle
from tasks.topology import Topology

MOST_KEPT = 1000  # envelopes kept; a caller that computes each deadline anew needs a new one for each call


class CallFrames:
    """Writes calls for one connection after another; the parts that a service's calls share are made once for each."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._envelopes: dict[tuple[str, bool, float | None, int], Envelope] = {}
        self._channel, self._one_way_channel, self._frame_max = 0, 0, 0

    def open(self, channel: int, frame_max: int) -> None:
        """Write for a new connection from now on."""
        self._channel, self._frame_max = channel, frame_max
        self._envelopes.clear()

    def open_one_way(self, channel: int) -> None:
        """Write one-way calls for this channel from now on."""
        self._one_way_channel = channel

    def of(self, call: Handle, now: float) -> bytes:
        """Return the frames of `call`."""
        spec = call.spec
        key = (spec.name, spec.response, call.time_to_live, call.retries)
        envelope = self._envelopes.get(key) if call.extra is None else None
        if envelope is None:
            envelope = self._envelope(call)
            if call.extra is None:
                if len(self._envelopes) > MOST_KEPT:
                    self._envelopes.clear()
                self._envelopes[key] = envelope
        expires = expires_at(call.deadline - now) if envelope.expires else b""  # not later, though it may have waited
        return envelope.write(call.id, expires, call.args_body)

    def _envelope(self, call: Handle) -> Envelope:
        spec, extra = call.spec, call.extra
        return Envelope(
            self._channel if spec.response else self._one_way_channel,
            self._frame_max,
            self._topology.service.name,
            spec.name,
            reply_to=DIRECT_REPLY if spec.response else "",
            time_to_live=call.time_to_live,
            retries=call.retries,
            persistent=not spec.response,
            headers=None if extra is None else extra.call.headers,
            priority=None if extra is None else extra.priority,
            key=self._topology.delay_queue(spec.name, extra.delay).routing_key if extra and extra.delay else "",
        )
