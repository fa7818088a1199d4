"""For tests and searches for faults: which weights played the away side of each match, from its first decision on.

With WARREN_MATCH_RECORD=FOLDER each league actor writes FOLDER/SOURCE.jsonl, two lines a match: one at the opponent's
first decision, one when its result was reported. Without it nothing is watched and nothing costs.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np

from agents.policies import ActionBatch, Policy
from league.state.league_state import Match

FOLDER = "WARREN_MATCH_RECORD"


def checksum(policy: Policy) -> int:
    """CRC-32 over all weights, in the order of their names."""
    crc = 0
    for name, tensor in sorted(policy.state_dict().items()):
        crc = zlib.crc32(tensor.detach().cpu().contiguous().numpy().data, zlib.crc32(name.encode(), crc))
    return crc


class Watched:
    """Plays as `policy` does; `seen` are the checksums of the weights at its decisions, without repetitions."""

    def __init__(self, policy: Policy, record: MatchRecord, match: Match) -> None:
        self._policy, self._record, self._match = policy, record, match
        self.decisions = 0
        self.first = self.last = 0
        self.changed = False

    def step(self, observation: np.ndarray, *args: Any, **kwargs: Any) -> ActionBatch:
        """As Policy.step."""
        self.last = checksum(self._policy)
        if not self.decisions:
            self.first = self.last
            self._record.write({"match": self._match.match, "away": self._match.away, "first": self.first})
        self.decisions += len(observation)
        self.changed = self.changed or self.last != self.first
        return self._policy.step(observation, *args, **kwargs)


class MatchRecord:
    """Lines of one actor; `path` None records nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._watched: dict[str, Watched] = {}

    @classmethod
    def from_environment(cls, source: str) -> MatchRecord:
        """As the environment variable asks for, for actor process `source`."""
        folder = os.environ.get(FOLDER)
        return cls(None if folder is None else Path(folder) / f"{source}.jsonl")

    def watched(self, match: Match, policy: Policy | None) -> Policy | None:
        """What plays the away side of `match` in the place of `policy`; a policy on its own (None) is not watched."""
        if self._path is None or policy is None:
            return policy
        self._watched[match.match] = watched = Watched(policy, self, match)
        return cast(Policy, watched)

    def ended(self, match: Match, status: str) -> None:
        """The result of `match` was reported; `status` is what the league said to it."""
        if (watched := self._watched.pop(match.match, None)) is not None:
            seen = {"first": watched.first, "last": watched.last, "changed": watched.changed}
            self.write({"match": match.match, "away": match.away, "status": status, **seen})

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        assert self._path is not None
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
