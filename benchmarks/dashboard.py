"""The cost of the dashboard: its first view of a large league, the delay of an event, its share of a league's time.

`python -m benchmarks.dashboard [--players 500] [--events 1000000] [--seconds 60] [--only first|live]`: the first view
is all that the page of a saved league asks for, from a server that has just started; the league's newest file is as
long as a keeper lets it become (100,000 events). Live, an experiment trains while one page listens; the dashboard's
share is its processor time as part of that of all of the run's processes and its own.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import numpy as np
import psutil

from benchmarks.apparatus.report import finish
from league.rules.ratings import elo_update
from league.rules.settings import Settings
from league.state.fields import to_json
from league.state.history import History

SEGMENT = 100_000  # events of a file
GAMES = 8  # games of a match
LEARNING = 10  # players that learn
TOKEN = "benchmark"
MADE_EVERY = 10  # s between lines of progress


def events(players: int, number: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (id, event) of a league of `number` events; players join evenly over the first half."""
    generator = np.random.default_rng(1)
    ratings: list[float] = []
    milliseconds, sent = 1_700_000_000_000, 0

    def entry(event: dict[str, str]) -> tuple[str, dict[str, str]]:
        nonlocal milliseconds, sent
        milliseconds, sent = milliseconds + 5, sent + 1
        return f"{milliseconds}-0", event

    yield entry({"event": "created", **Settings().to_fields()})
    while sent < number:
        if len(ratings) < players and sent >= len(ratings) * number / (2 * players):
            frozen = len(ratings) >= LEARNING
            parent = f"main{len(ratings) % LEARNING}" if frozen else ""
            name = f"{parent}@{len(ratings)}" if frozen else f"main{len(ratings)}"
            facts = {"kind": "main_agent", "config": "{}", "rules": "{}", "hyperparameters": "{}", "by": "league"}
            place = {"slot": str(len(ratings)), "parent": parent, "model": name if frozen else "", "initial": ""}
            yield entry({"event": "added", "name": name, "frozen": str(int(frozen)), "elo": "1200", **facts, **place})
            ratings.append(1200.0)
            continue
        home = int(generator.integers(min(LEARNING, len(ratings))))
        away = int(generator.integers(len(ratings)))
        names = [f"main{slot}" if slot < LEARNING else f"main{slot % LEARNING}@{slot}" for slot in (home, away)]
        match = f"{sent:016x}"
        of_match = {"home": names[0], "away": names[1], "home_generation": "0", "away_generation": "0"}
        lease = {"branch": "pfsp", "holder": f"actor-{sent % 64}", "deadline": str(milliseconds + 60_000)}
        yield entry({"event": "issued", "match": match, **of_match, **lease})
        outcomes = "".join("wdl"[place] for place in generator.integers(0, 3, GAMES))
        ratings[home], ratings[away] = elo_update(ratings[home], ratings[away], outcomes)
        elo = {"home_elo": repr(ratings[home]), "away_elo": repr(ratings[away])}
        yield entry(
            {"event": "ended", "match": match, "as": "counted", "outcomes": outcomes, "by": lease["holder"], **elo}
        )


def write_league(folder: Path, players: int, number: int) -> None:
    """Write a league's folder like its keeper, each file behind a checkpoint."""
    (folder / "history").mkdir(parents=True)
    history, lines, first, said = History(), list[str](), "", time.monotonic()
    for place, (entry, event) in enumerate(events(players, number)):
        first = first or entry
        if place and place % SEGMENT == 0 and place <= number - SEGMENT:  # the last file is full
            (folder / "history" / f"{first}.{SEGMENT}.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode(), 1))
            first = history.last_event
            lines = [to_json({"id": first, "fields": history.checkpoint()}) + "\n"]
        lines.append(json.dumps({"fields": event, "id": entry}) + "\n")
        history.take([(entry, event)])
        if time.monotonic() > said + MADE_EVERY:
            said = time.monotonic()
            print(f"{place:,} of {number:,} events made", flush=True)
    (folder / "league.jsonl").write_text("".join(lines))


@contextmanager
def served(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Start a dashboard, and yield (its process, its port) once it answers."""
    command = [sys.executable, "-m", "workers.dashboard", str(folder), "--port", "0"]
    environment = {**os.environ, "WARREN_DASHBOARD_TOKEN": TOKEN}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield psutil.Process(process.pid), int(line.partition("/?")[0].rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def asked(port: int, path: str) -> bytes:
    """Return the answer to a GET. Raises RuntimeError for any other status than 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path, headers={"authorization": f"Bearer {TOKEN}", "accept-encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: status {answer.status}, {body[:200]!r}")
    return body


def first_view(players: int, number: int) -> dict[str, Any]:
    """Return seconds, processor seconds and MB until the page of a saved league has all that it shows."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "run"
        write_league(folder / "league", players, number)
        print("made; the dashboard starts", flush=True)
        with served(folder) as (process, port):
            before, began = sum(process.cpu_times()[:2]), time.perf_counter()
            sent = len(asked(port, "/run?run=run")) + len(asked(port, "/api/state?run=run"))
            standings = time.perf_counter() - began
            sent += len(asked(port, "/api/series?run=run")) + len(asked(port, "/api/lineage?run=run"))
            whole, used = time.perf_counter() - began, sum(process.cpu_times()[:2]) - before
            memory = process.memory_info().rss / 1e6
            middle = 1_700_000_000 + number * 0.00225  # in the middle of a file
            moments = []
            for moment in (middle, middle + 5.0):
                began = time.perf_counter()
                asked(port, f"/api/state?run=run&at={moment}")
                moments.append(round(time.perf_counter() - began, 2))
            after = process.memory_info().rss / 1e6
    return {
        "standings and payoff, s": round(standings, 2),
        "whole page, s": round(whole, 2),
        "processor, s": round(used, 2),
        "MB": round(memory),
        "sent, MB": round(sent / 1e6, 2),
        "a moment of another file, s": moments[0],
        "a moment near it, s": moments[1],
        "MB after both": round(after),
    }


def live(seconds: int) -> dict[str, Any]:
    """Return the delay of events at a page while a league trains, and the dashboard's share of the processor time."""
    with tempfile.TemporaryDirectory() as made:
        words = ["experiment=kuhn", "trial=one", f"seconds={seconds}", "league.goal=null", "actors=1", f"folder={made}"]
        run = subprocess.Popen([sys.executable, "-m", "workers.train", *words], stdout=subprocess.DEVNULL)
        stream = Path(made) / "kuhn" / "one" / "league" / "league.jsonl"
        try:
            while not stream.exists() and run.poll() is None:
                time.sleep(0.2)
            with served(Path(made)) as (process, port):
                late, share = _listen(process, port, psutil.Process(run.pid), 0.6 * seconds)
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()
    return {
        "messages": len(late),
        "age of the newest event, s, median": round(median(late), 2),
        "age of the newest event, s, most": round(max(late), 2),
        "share of processor time": round(share, 4),
    }


def _listen(dashboard: psutil.Process, port: int, run: psutil.Process, seconds: float) -> tuple[list[float], float]:
    """Return (s from the newest event of each message to its arrival, the dashboard's share of all processor time)."""
    asked(port, f"/api/state?run={quote('kuhn/one')}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", f"/api/events?run={quote('kuhn/one')}", headers={"authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    before = {one.pid: sum(one.cpu_times()[:2]) for one in [run, *run.children(recursive=True), dashboard]}
    until, late, newest = time.monotonic() + seconds, list[float](), ""
    while time.monotonic() < until and (line := answer.readline()):
        if line.startswith(b"data: "):
            event = json.loads(line[6:]).get("event", newest)  # the first message has no event
            if event != newest and newest:
                late.append(time.time() - int(event.partition("-")[0]) / 1000)
            newest = event
    used = {}
    for one in [run, *run.children(recursive=True), dashboard]:
        used[one.pid] = sum(one.cpu_times()[:2]) - before.get(one.pid, 0.0)
    return late[1:], used[dashboard.pid] / sum(used.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--players", type=int, default=500)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=60, help="of the league that trains")
    parser.add_argument("--only", choices=("first", "live"))
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    if given.only != "live":
        figures["first view"] = first_view(given.players, given.events)
        print(figures["first view"], flush=True)
    if given.only != "first":
        figures["live"] = live(given.seconds)
        print(figures["live"], flush=True)
    finish("dashboard", {"players": given.players, "events": given.events, **figures})


if __name__ == "__main__":
    main()
