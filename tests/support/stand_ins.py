"""Stand-ins for the parts of a run that a learner talks to."""

from __future__ import annotations

from typing import Any


class Chords:
    """A stand-in for the broker. `dispatched`: (round id, version, number of rollouts) of each round."""

    def __init__(self) -> None:
        self.dispatched: list[tuple[str, int, int]] = []
        self.away, self.refused = False, 0

    def gather(self, app: Any, calls: Any, then: Any, on_error: Any) -> None:
        if self.away:
            self.refused += 1
            raise ConnectionError("the broker is away")
        assert then.task == "learner.learn"
        assert on_error.task == "learner.round_failed"
        assert all(call.task == "actor.rollout" and call.options["ignore_result"] for call in calls)
        (round_id, version), *_ = {tuple(call.args) for call in calls}
        assert tuple(on_error.args) == (round_id,)
        self.dispatched.append((round_id, version, len(calls)))

    @property
    def last(self) -> str:
        return self.dispatched[-1][0]
