"""Numbers for the segments of an actor; the run's ledger notes each before another process can receive it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import redis

from agents.trajectories import Trajectory
from warren import formats
from workers.runtime.segment_ledger import Segment
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

STAMP = formats.stamp(formats.MESSAGES)


class Numbering:
    """Numbers of the segments of one actor process, `source`."""

    def __init__(self, session: Session, source: str) -> None:
        self._session, self._source = session, source
        self._next = 0

    def __call__(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return the payload of a new segment, and note it in the ledger."""
        payload = self.number(trajectory)
        self.note(payload)
        return payload

    def number(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return the payload of a new segment: source, number, steps, and the trajectory."""
        number, self._next = self._next, self._next + 1
        steps = trajectory.num_steps
        sent = {"source": self._source, "number": number, "steps": steps, "trajectory": trajectory.to_dict()}
        return sent | {"written_by": STAMP}

    def note(self, payload: Mapping[str, Any]) -> None:
        """Note a numbered payload in the ledger, before another process can receive it."""
        try:
            self._session.ledger.make(segment_of(payload))
        except redis.RedisError as error:  # its confirmation or its end will note it, too
            logger.warning("segment %d that was made is not noted yet: %s", payload["number"], error)

    def confirm(self, payload: Mapping[str, Any]) -> None:
        """Note in the ledger that the broker has the payload."""
        try:
            self._session.ledger.confirm(segment_of(payload))
        except redis.RedisError as error:  # it counts as sent once a learner has it
            logger.warning("segment %d that was sent is not noted as sent: %s", payload["number"], error)


def segment_of(payload: Mapping[str, Any]) -> Segment:
    """Return the segment of a numbered payload."""
    return Segment(payload["source"], payload["number"], payload["steps"])
