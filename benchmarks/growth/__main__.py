"""The cost of growth: `python -m benchmarks.growth --only PART`. Each part takes four minutes at most.

A part that does not end within them is continued by the same command, if --folder keeps its figures.

actors, environments, model, learners   us of a core that a step costs each role of a run, with the same work shared by
          1 to 32 actors, in 16 to 1,024 environments each, with weights of 0.1 to 100 MB, learned from by 1 to 4
          learners; the costs that grew although they should be constant
players   a match in a league of 4 to 1,000 players: us of Redis and of a league worker, time to a match
opponents how often an actor loads an opponent, and the time from the request until the opponent can play, in a league
          with 1,000 frozen models
links     a learner and two actors on hosts of their own: the rate with 50 ms on every way between two of them
simulated 10, 100 and 1,000 actors with a core each: what saturates first, by queues with measured service times

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.apparatus.jobs import own_servers
from benchmarks.apparatus.points import Points, TimeLeft
from benchmarks.apparatus.report import finish
from benchmarks.growth import league as growth_league
from benchmarks.growth import limits as growth_limits
from benchmarks.growth import links as growth_links
from benchmarks.growth import runs as growth_runs

PARTS = (*growth_runs.PARTS, "players", "opponents", "links", "simulated")
MATCHES = 500  # matches of each round


def main() -> int:
    """Measure, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=220.0, help="of a part; no run begins that would not end")
    parser.add_argument("--folder", type=Path, help="keeps what is measured; the same command goes on with the rest")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    for part in given.only or PARTS:
        time_left, points = TimeLeft(given.seconds), Points(given.folder, f"growth_{part}")
        if part in growth_runs.PARTS:
            figures |= growth_runs.measure(part, time_left, points, given.rounds)
        elif part == "links":
            figures |= growth_links.measure(given.rounds, time_left, points)
        elif part == "simulated":
            runs = TimeLeft(given.seconds - growth_limits.SIMULATING)
            figures |= growth_limits.measure(runs, points)
        else:
            with own_servers() as (_, urls):
                servers = urls["WARREN_BROKER_URL"], urls["WARREN_REDIS_URL"]
                figures |= getattr(growth_league, part)(*servers, MATCHES, given.rounds, time_left, points)
    for name, value in figures.items():
        print(f"{name}: {value}", flush=True)
    finish("growth", figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
