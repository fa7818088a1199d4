"""`python -m workers.gateway.fakes.gamecore --url URL`: games that ask a gateway, for an Actor's tests and its load.

Bodies are given as text or as @FILE. The last line is JSON: requests, requests/s, latencies, statuses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

import numpy as np

from warren.environment import secret
from workers.config.command_line import guarded
from workers.gateway.fakes.arguments import given
from workers.gateway.fakes.games import Play, PlayStatistics, play
from workers.gateway.limits import TOKEN


def figures(seen: PlayStatistics) -> dict[str, Any]:
    """Return the statistics as a JSON table."""
    latencies = np.array(seen.latencies or [0.0]) * 1e3
    return {
        "requests": len(seen.latencies),
        "rps": round(len(seen.latencies) / seen.seconds, 1),
        "p50_ms": round(float(np.percentile(latencies, 50)), 3),
        "p99_ms": round(float(np.percentile(latencies, 99)), 3),
        "errors": seen.errors,
        "statuses": dict(seen.statuses),
        "games": seen.games,
        "left": seen.left,
    }


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.gateway.fakes.gamecore", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--games", type=int, default=16, help="played at once")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--dialect", choices=("session", "game_id"), default="session")
    for kind in ("start", "tick", "end"):
        parser.add_argument(f"--{kind}", default="", help="the body of it; @FILE: what the file holds")
    parser.add_argument("--ticks", type=int, default=50, help="of a game")
    parser.add_argument("--delay", type=float, default=0.0, metavar="S", help="between a reply and the next request")
    parser.add_argument("--burst", action="store_true", help="pauses of all games end together")
    parser.add_argument("--leave", type=float, default=0.0, metavar="P", help="chance that a game leaves for good")
    options = parser.parse_args()

    def run() -> int:
        what = Play(
            options.url, options.dialect, secret(TOKEN),
            given("--start", options.start), given("--tick", options.tick), given("--end", options.end),
            options.ticks, options.delay, options.burst and options.delay > 0, options.leave,
        )  # fmt: skip
        seen = asyncio.run(play(what, options.games, options.seconds))
        print(json.dumps(figures(seen)))
        return 1 if seen.errors else 0

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
