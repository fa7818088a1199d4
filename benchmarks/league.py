"""The league measured: `python -m benchmarks.league speed`. The last line is JSON."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import league_speed
from benchmarks.report import finish
from workers import servers


def main() -> None:
    """Start a private Redis, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league", description=(__doc__ or "").partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    speed = parts.add_parser("speed", help="matches, results, models and memory, beside what else could be done")
    speed.add_argument("--players", type=int, default=league_speed.PLAYERS)
    speed.add_argument("--seconds", type=float, default=2.0, help="of each side of each round")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="warren-bench-") as folder,
        servers.acquire("private", folder=Path(folder)) as found,
    ):
        figures = league_speed.measure(found.redis_url, given.players, given.seconds)
    for name, value in figures.items():
        print(f"{name:28} {value}")
    finish("league speed", figures)


if __name__ == "__main__":
    main()
