"""Each segment that an actor makes gets a number, and the run's ledger knows of it before anybody else can have it."""

from __future__ import annotations

import logging
from typing import Any

import redis

from agents.trajectories import Trajectory
from workers.runtime.segment_ledger import Segment
from workers.runtime.session import Session

logger = logging.getLogger(__name__)


class Numbering:
    """The segments of one actor process, `source`."""

    def __init__(self, session: Session, source: str) -> None:
        self._session, self._source = session, source
        self._next = 0

    def __call__(self, trajectory: Trajectory) -> dict[str, Any]:
        """What the payload of a new segment says of it: source, number, steps, and the trajectory."""
        segment = Segment(self._source, self._next, trajectory.num_steps)
        self._next += 1
        try:
            self._session.ledger.make(segment)
        except redis.RedisError as error:  # it is noted with what follows
            logger.warning("segment %d that was made is not noted yet: %s", segment.number, error)
        source, number, steps = segment
        return {"source": source, "number": number, "steps": steps, "trajectory": trajectory.to_dict()}
