"""Tests of gateways that are killed, as is the run's Redis, or stopped while games train through them."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import threading
import uuid
from pathlib import Path

import pytest
from support.own_redis import until_it_answers
from support.training_run import TrainingRun
from support.waiting import PATIENCE, until

from workers.servers import Servers
from workers.servers.ports import free_port

TICKS = 20  # per game


class Games:
    """Threads that play game after game, each on a connection of its own; a refused game is started again."""

    def __init__(self, port: int, at_once: int = 4) -> None:
        self.played = 0
        self._port, self._over = port, threading.Event()
        self._threads = [threading.Thread(target=self._play, daemon=True) for _ in range(at_once)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _play(self) -> None:
        while not self._over.wait(0.01):
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
            try:
                self._game(connection)
                self.played += 1
            except (OSError, http.client.HTTPException, AssertionError):
                self._over.wait(0.1)
            finally:
                connection.close()

    def _game(self, connection: http.client.HTTPConnection) -> None:
        session = uuid.uuid4().hex
        for kind in ("start", *["tick"] * TICKS, "stop"):
            assert asked(connection, session, kind) == 200


def asked(connection: http.client.HTTPConnection, session: str, kind: str) -> int:
    """Return the status of the gateway's response."""
    message = {"observation": [0.0, 0.1, 0.0, -0.1], "reward": 1.0, "out_of_time": False}
    body = b"" if kind == "start" else json.dumps(message).encode()
    connection.request("POST", "/", body, {"session": session, "step_kind": kind})
    reply = connection.getresponse()
    reply.read()
    return reply.status


@pytest.mark.slow
def test_training_by_games_goes_on_when_a_gateway_and_redis_are_killed(tmp_path: Path, servers: Servers) -> None:
    port, redis_port, binary = free_port(), free_port(), shutil.which("redis-server")
    assert binary is not None
    command = [binary, "--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    redis = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    until_it_answers(redis_port)
    settings = ("experiment=cartpole_gamecore", f"gateway.port={port}", "actors=2", "env.num_envs=4", "env.goal=null")
    settings += ("unroll_length=32", "total_steps=1000000000")
    urls = {"broker_url": servers.broker_url, "redis_url": f"redis://127.0.0.1:{redis_port}/0"}
    games = Games(port)
    try:
        with TrainingRun(tmp_path, *settings, **urls) as run:
            run.after_updates(2)
            killed = run.role("gateway-0")
            killed.kill()
            killed.wait()
            run.after_updates(3)
            run.until(lambda: run.role("gateway-0").pid != killed.pid)
            redis.kill()
            redis.wait()
            played = games.played
            until(lambda: games.played > played + 2, "a game while Redis is away")
            redis = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
            run.after_updates(3)
            played = games.played
            until(lambda: games.played > played + 2, "a game after Redis came back")
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130
        assert run.output.count("ended with status") == 1, f"a process that was not killed has died:\n{run.output}"
    finally:
        games.end()
        redis.kill()
        redis.wait()


@pytest.mark.slow
def test_a_gateway_that_is_told_to_stop_lets_its_games_end(tmp_path: Path, servers: Servers) -> None:
    port = free_port()
    settings = ("experiment=cartpole_gamecore", f"gateway.port={port}", "actors=1", "env.goal=null")
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    game, other = (http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE) for _ in range(2))

    def begun() -> bool:
        try:
            return asked(game, "a", "start") == 200 == asked(other, "b", "start")
        except (OSError, http.client.HTTPException):  # it is still starting
            game.close()
            other.close()
            return False

    with TrainingRun(tmp_path, *settings, "gateway.drain=600", **urls) as run:
        run.until(begun)
        gateway = run.role("gateway-0")
        gateway.terminate()

        def stopping() -> bool:
            """Return whether the gateway refuses new sessions; check that it still ends open ones."""
            assert asked(other, "b", "stop") == 200
            return asked(other, "b", "start") == 503

        until(stopping)
        assert asked(game, "a", "tick") == asked(game, "a", "stop") == 200
        until(lambda: not gateway.is_running())
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
