"""Tests of the clients in other languages in examples/gamecore: a policy learns from them through two gateways."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.gateways import Gateway
from support.launched import PATIENCE
from support.training_run import TrainingRun
from support.waiting import until

from envs.one_agent import gamecore_actors
from workers.servers import Servers
from workers.servers.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples" / "gamecore"
GOAL = 100  # mean return of the last 100 games; random play has 22


def compiled(folder: Path) -> Path:
    """Compile the C++ client by the command in its first lines; return the program."""
    source = EXAMPLES / "game.cpp"
    command = re.search(r"^//     (g\+\+ .*)$", source.read_text(), re.MULTILINE)
    assert command
    words = command[1].replace("examples/gamecore/game.cpp", str(source)).split()
    if shutil.which(words[0]) is None:
        pytest.skip("this machine has no C++ compiler")
    done = subprocess.run([*words, "-Wall", "-Werror"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / words[-1]


@contextlib.contextmanager
def learning(folder: Path, servers: Servers, port: int, raw: int) -> Iterator[TrainingRun]:
    """Yield a run that ends at the goal, with two gateways that demand a token."""
    settings = ("experiment=cartpole_gamecore", f"gateway.port={port}", f"gateway.tcp_port={raw}", "actors=2")
    settings += (f"env.goal={GOAL}", "gateway.drain=0.1")
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(folder, *settings, environment={"WARREN_GATEWAY_TOKEN": "open"}, **urls) as run:
        yield run


@contextlib.contextmanager
def playing(*command: str) -> Iterator[subprocess.Popen[str]]:
    game = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield game
    finally:
        game.kill()
        game.wait()


class Elsewhere(BaseHTTPRequestHandler):
    """A gateway without sessions, which redirects each request to another gateway."""

    protocol_version, address = "HTTP/1.1", ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(307)
        self.send_header("location", self.address)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def node(*words: str) -> tuple[str, ...]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    return "node", str(EXAMPLES / "game.js"), *words


def test_the_game_in_javascript_follows_redirects() -> None:
    gateway = Gateway(gamecore_actors.find(str(EXAMPLES / "actor.py") + ":CartPole"))
    first = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    Elsewhere.address = f"http://127.0.0.1:{gateway.server.port}/"
    threading.Thread(target=first.serve_forever, daemon=True).start()
    try:
        with playing(*node("--games", "2", "--url", f"http://127.0.0.1:{first.server_port}")) as game:
            until(
                lambda: gateway.sessions.metrics.snapshot({})["statuses"].get("200", 0) > 100 or game.poll() is not None
            )
            assert game.poll() is None
            gateway.close()
            assert game.wait(PATIENCE) == 0  # no gateway answers any longer
    finally:
        gateway.close()
        first.shutdown()
        first.server_close()


@pytest.mark.slow
@pytest.mark.servers
def test_a_policy_learns_from_a_game_in_javascript(tmp_path: Path, servers: Servers) -> None:
    port, raw = free_port(), free_port()
    client = node("--url", f"http://127.0.0.1:{port}", "--token", "open")
    with playing(*client) as game, learning(tmp_path, servers, port, raw) as run:
        assert run.wait(600.0) == 0, run.output
        assert game.wait(PATIENCE) == 0
    assert run.output.strip().splitlines()[-1].startswith("solved: "), run.output
    assert run.account()["learned"] > 0


@pytest.mark.slow
@pytest.mark.servers
def test_a_policy_learns_from_a_game_in_cpp_over_tcp(tmp_path: Path, servers: Servers) -> None:
    client = compiled(tmp_path)
    port, raw = free_port(), free_port()
    command = (str(client), "16", "127.0.0.1", str(raw), "open")
    with playing(*command) as game, learning(tmp_path, servers, port, raw) as run:
        assert run.wait(600.0) == 0, run.output
        assert game.wait(PATIENCE) == 0
    assert run.output.strip().splitlines()[-1].startswith("solved: "), run.output
    assert run.account()["learned"] > 0
