"""A league manager as commonly written: one thread, one process, everything in Python dicts; for comparison.

It does the work of TLeague's manager for an AlphaStar main agent. It keeps win rates of all pairs in dicts with the
same decay, and matches in a dict until their result arrives. It draws by squared PFSP over all of history, and checks
exploiters. It has no leases, no idempotence, no stream and nothing on disk, and every actor would have to use its one
thread.
"""

from __future__ import annotations

import random
from collections import defaultdict


class InProcessManager:
    """Players are names; a name with an @ is a frozen snapshot."""

    def __init__(self, decay: float = 0.99, seed: int = 0) -> None:
        self.decay, self.random = decay, random.Random(seed)
        self.players: list[str] = []
        self.games: dict[tuple[str, str], float] = defaultdict(float)
        self.wins: dict[tuple[str, str], float] = defaultdict(float)
        self.matches: dict[int, tuple[str, str]] = {}
        self.number = 0

    def add(self, name: str) -> None:
        self.players.append(name)

    def win_rate(self, home: str, away: str) -> float:
        games = self.games[home, away]
        return self.wins[home, away] / games if games > 0 else 0.5

    def pfsp(self, home: str, candidates: list[str]) -> str:
        weights = [(1.0 - self.win_rate(home, name)) ** 2 for name in candidates]
        if sum(weights) < 1e-10:
            return self.random.choice(candidates)
        return self.random.choices(candidates, weights)[0]

    def request(self, home: str) -> tuple[int, str]:
        """Return (match, opponent), by the main agent's random branches."""
        coin = self.random.random()
        historical = [name for name in self.players if "@" in name]
        if coin < 0.5 and historical:
            away = self.pfsp(home, historical)
        else:
            away = home
            if coin < 0.65:
                exploiters = [name for name in historical if name.startswith("hunter")]
                if exploiters and min(self.win_rate(home, name) for name in exploiters) < 0.3:
                    away = self.pfsp(home, exploiters)
        self.number += 1
        self.matches[self.number] = (home, away)
        return self.number, away

    def report(self, match: int, outcome: str) -> None:
        home, away = self.matches.pop(match)
        for one, other, won in ((home, away, outcome == "w"), (away, home, outcome == "l")):
            self.games[one, other] = self.games[one, other] * self.decay + 1.0
            self.wins[one, other] = self.wins[one, other] * self.decay + (0.5 if outcome == "d" else float(won))
