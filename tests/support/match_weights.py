"""A record of the away side's weights in each match of a run, from its first decision to its last.

The actors of a run that is started with `environment(folder)` write FOLDER/PROCESS.jsonl, two lines per match: one at
the opponent's first decision, one after the report of its result.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from agents.networks import Memory
from agents.policies import ActionBatch, Policy
from league.state.league_state import Match
from workers.leagues.player_host import PlayerHost
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.seat_map import Opponent

FOLDER = "WARREN_TEST_MATCHES"


def environment(folder: Path) -> dict[str, str]:
    """Return environment variables for a run whose actors write in `folder`."""
    return {FOLDER: str(folder), "PYTHONPATH": str(Path(__file__).parent / "watched_matches")}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of all actors, without the half line of an actor that was killed."""
    found = []
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return found


def checksum(policy: Policy) -> int:
    """Return the CRC-32 of all weights, in the order of their names."""
    crc = 0
    for name, tensor in sorted(policy.state_dict().items()):
        crc = zlib.crc32(tensor.detach().cpu().contiguous().numpy().data, zlib.crc32(name.encode(), crc))
    return crc


class WatchedPolicy:
    """Plays like `policy`, and keeps the checksum of the weights at its first and its latest decision."""

    def __init__(self, policy: Policy, folder: Path, match: Match) -> None:
        self._policy, self._folder, self._match = policy, folder, match
        self.first: int | None = None
        self.last = 0
        self.changed = False

    def initial_memory(self, n: int) -> Memory:
        return self._policy.initial_memory(n)

    def step(self, observation: np.ndarray, *args: Any, **kwargs: Any) -> ActionBatch:
        self.last = checksum(self._policy)
        if self.first is None:
            self.first = self.last
            self.write(first=self.first)
        self.changed = self.changed or self.last != self.first
        return self._policy.step(observation, *args, **kwargs)

    def write(self, **facts: Any) -> None:
        line = {"match": self._match.id, "away": self._match.away, **facts}
        with (self._folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


class WatchingHost(PlayerHost):
    """A PlayerHost that records its opponents' weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._watched: dict[str, WatchedPolicy] = {}
        self._folder = Path(os.environ[FOLDER])

    def opponent(self, match: Match) -> Opponent:
        opponent = super().opponent(match)
        if opponent.policy is None:
            return opponent
        self._watched[match.id] = watched = WatchedPolicy(opponent.policy, self._folder, match)
        return replace(opponent, policy=cast(Policy, watched))

    def report(self, match: Match, result: MatchResult) -> None:
        super().report(match, result)
        watched = self._watched.pop(match.id, None)
        if watched is not None and len(result.returns):
            watched.write(reported=True, first=watched.first, last=watched.last, changed=watched.changed)
