"""Games that drive themselves: requests/s of a gateway, beside Ray Serve doing the same in the same run.

    python -m benchmarks.gamecore                                # 1, 100 and 1,000 games, a small network and images
    python -m benchmarks.gamecore --peers DIR                    # DIR/ray is Ray's environment (or --ray PYTHON)
    python -m benchmarks.gamecore --clients 1000 --url http://127.0.0.1:8000     # any gateway's load; starts none

Each game keeps its connection, starts a session, ticks 50 times, ends it, and begins the next, as fast as the answers
come. The gateway, the games and Ray's processes share this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.apparatus.peer_python import peer_python
from benchmarks.apparatus.report import finish
from workers.gateway.fakes.gamecore import figures
from workers.gateway.fakes.games import Play, play
from workers.gateway.limits import TOKEN
from workers.servers.ports import free_port

CLIENTS = (1, 100, 1000)
TICK = {"mlp": np.zeros(4, np.float32).tobytes(), "cnn": bytes(4 * 84 * 84)}
ACTORS = {"mlp": ("Vector", "{}"), "cnn": ("Image", '{"name": "nature_cnn"}')}
AT_LEAST = 1.5  # times Ray Serve's requests/s at 100 games


def main() -> int:
    """Run the command line; return exit status 1 if a gateway started here refused a request."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gamecore", description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS, help="games at once")
    parser.add_argument("--url", help="of a gateway that serves already; the others are not started")
    parser.add_argument("--tick", choices=TICK, default="mlp", help="the body that a gateway at --url is asked with")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="of the peers' environments: DIR/ray")
    parser.add_argument("--ray", default=os.environ.get("WARREN_RAY_PYTHON"), metavar="PYTHON")
    options = parser.parse_args()
    if options.url:
        tick = TICK[options.tick]
        found = {str(n): measured(options.url, n, options.seconds, tick, "session") for n in options.clients}
        for name, one in found.items():
            say(options.url, name, one)
        errors = sum(one["errors"] for one in found.values())
        finish("gamecore", {"url": options.url, "clients": found, "errors": errors})
        return 0
    ray = peer_python("Ray Serve", options.ray, options.peers, "ray")
    warren: dict[str, Any] = {}
    ray_serve: dict[str, Any] = {}
    for kind in TICK:
        with gateway(kind) as url:
            for dialect in ("session", "game_id"):
                for clients in options.clients:
                    name = f"{kind} {dialect} {clients}"
                    warren[name] = measured(url, clients, options.seconds, TICK[kind], dialect)
                    say("gateway", name, warren[name])
        if ray is not None:
            with ray_serve_of(ray, kind) as url:
                for clients in options.clients:
                    name = f"{kind} session {clients}"
                    ray_serve[name] = measured(url, clients, options.seconds, TICK[kind], "session")
                    say("Ray Serve", name, ray_serve[name])
    errors = sum(one["errors"] for one in warren.values())
    report = {"warren": warren, "ray_serve": ray_serve, "errors": errors}
    if (hundred := warren.get("mlp session 100")) is not None:
        report |= {"rps_100": hundred["rps"], "p99_ms_100": hundred["p99_ms"], "rps_vs_ray_serve": None}
        if peer := ray_serve.get("mlp session 100"):
            report["rps_vs_ray_serve"] = round(hundred["rps"] / peer["rps"], 2)
            report["met"] = report["rps_vs_ray_serve"] >= AT_LEAST
    finish("gamecore", report)
    return 1 if errors else 0


def measured(url: str, clients: int, seconds: float, tick: bytes, dialect: str) -> dict[str, Any]:
    """Run `clients` games for `seconds`, after a second that does not count; return the figures."""
    what = Play(url, dialect, os.environ.get(TOKEN), tick=tick)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play(what, clients, 1.0))
        return figures(runner.run(play(what, clients, seconds)))


def say(who: str, name: str, found: dict[str, Any]) -> None:
    """Print a line for a person."""
    print(
        f"{who:10} {name:18} {found['rps']:9,.0f} requests/s   p50 {found['p50_ms']:8.2f} ms   "
        f"p99 {found['p99_ms']:8.2f} ms   {found['errors']} errors",
        flush=True,
    )


@contextlib.contextmanager
def gateway(kind: str) -> Iterator[str]:
    """Run a gateway in a process of its own, with random weights; yield its URL."""
    actor, network = ACTORS[kind]
    command = ["-m", "workers.gateway.fakes.model", f"benchmarks.gamecore.actors:{actor}", "--port", "0"]
    with started([sys.executable, *command, "--network", network]) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"


@contextlib.contextmanager
def ray_serve_of(python: str, kind: str) -> Iterator[str]:
    """Run Ray Serve doing the same; yield its URL."""
    port = free_port()
    with started(
        [python, str(Path(__file__).parents[1] / "foreign" / "ray_serve_peer.py"), str(port), kind]
    ) as process:
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "ready\n":
            if not line:
                raise RuntimeError(f"Ray Serve ended with {process.wait()}")
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process, which is told to stop at the end of the block."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
