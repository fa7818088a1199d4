"""Several processes that serve one policy behind one port, as the gateways of a run do.

The kernel distributes connections. A session lives in the process that it was started in; the deployment's own Redis
knows which one that is (processes.py). A process that died is started again, and its sessions are over. A Redis that
died is started again with the data that it held.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from tasks.worker.celery_worker import log_to_stderr
from warren import redis_client, stop_signals
from warren.errors import ConfigurationError
from warren.separate_process import python
from workers.config.command_line import guarded
from workers.deployment.processes import Processes
from workers.deployment.role import serve
from workers.deployment.settings import DeployConfig
from workers.gateway.server import listen
from workers.runtime.trained import run_in
from workers.servers.machine import Machine
from workers.servers.private_redis import PrivateRedis
from workers.servers.running import Revival

logger = logging.getLogger(__name__)

LOOK = 0.5  # s between looks whether all processes live
STOP = 20.0  # s within which a process has to stop
PREFIX = "deployment:"  # prefix of all keys


class Part:
    """One of the processes; it ends when the pipe to it closes, so it never outlives the process that started it."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            python("-m", "workers.deployment.several"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()

    def ready(self) -> dict[str, Any] | None:
        """Return the fields that it prints once it serves; None if it could not serve, as its log explains."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def status(self) -> int | None:
        """Return its exit status; None while it lives."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Tell it to let its sessions end; safe to call twice."""
        assert self._process.stdin is not None
        self._process.terminate()
        self._process.stdin.close()

    def stop(self, drain: float = 0.0) -> None:
        """Ask it to stop, wait up to `drain` + STOP s for its end, then kill it; safe to call twice."""
        self.ask_to_stop()
        try:
            self._process.wait(drain + STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run(config: DeployConfig) -> int:
    """Serve by `config.processes` processes until told to stop, after printing the ports as one line of JSON.

    Returns exit status 0, or another if a process does not start, 1 if one that died cannot be started again. Raises
    ConfigurationError for ports that cannot be taken, and without a Redis.
    """
    log_to_stderr(config.log_level)
    stopping = threading.Event()
    stop_signals.hear(lambda _: stopping.set())
    gateway, folder = config.gateway, Path(tempfile.mkdtemp(prefix="warren-deployment-"))
    held: list[socket.socket] = []  # keeps the ports taken while none of the processes listens
    parts: list[Part] = []
    server = None
    try:
        held.append(_reserved("gateway.port", gateway.address, gateway.port))
        gateway.port = held[0].getsockname()[1]
        if gateway.tcp_port is not None:
            held.append(_reserved("gateway.tcp_port", gateway.address, gateway.tcp_port))
            gateway.tcp_port = held[1].getsockname()[1]
        server = PrivateRedis.start(_binary(), folder)
        settings = {**asdict(config), "run": str(run_in(Path(config.run))), "processes": 1}
        given = {"config": settings, "redis": server.url}
        parts += [Part({**given, "number": place}) for place in range(config.processes)]
        said = [part.ready() for part in parts]
        if None in said:
            return next(status for part in parts if (status := _ended(part)))
        first = said[0]
        assert first is not None
        print(json.dumps({**first, "processes": config.processes}), flush=True)
        revival = Revival()
        while not stopping.wait(LOOK):
            if not server.child.alive:  # games go on meanwhile, each in its session's process
                revival.check(server.child, logger.error, restarts=sys.maxsize)
            for place, part in enumerate(parts):
                if part.status() is not None:
                    logger.error("process %d ended with status %s; it is started again", place, part.status())
                    parts[place] = Part({**given, "number": place})
                    if parts[place].ready() is None and not stopping.is_set():
                        return 1
        return 0
    finally:
        for part in parts:
            part.ask_to_stop()
        for part in parts:
            part.stop(gateway.drain)
        if server is not None:
            server.stop()
        for one in held:
            one.close()
        shutil.rmtree(folder, ignore_errors=True)


def _ended(part: Part) -> int:
    part.stop()
    return part.status() or 0


def _binary() -> Path:
    machine = Machine()
    binary = machine.embedded_redis() or machine.redis()
    if binary is None:
        raise ConfigurationError(
            "processes: several need a Redis that knows whose session is whose, and this machine has no redis-server; "
            f"install one, or the package {machine.embedded_package}, or serve by processes=1"
        )
    return binary


def _reserved(setting: str, address: str, port: int) -> socket.socket:
    """Return a socket that holds `port`, or any free one for 0, and takes no connections; the processes share it."""
    listen(setting, address, port, shared=False).close()  # raises if it is taken, even by a holder that would share it
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((address, port))
    return reserved


def part() -> int:
    """Run one of the processes, with the settings that `Part` sends it."""
    given = json.loads(sys.stdin.readline())
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(DeployConfig), given["config"]))
    assert isinstance(config, DeployConfig)
    stopping = threading.Event()

    def gone() -> None:
        while os.read(0, 1):  # until the pipe closes
            pass
        stopping.set()

    threading.Thread(target=gone, daemon=True).start()
    gateway = config.gateway
    neighbours = Processes(redis_client.connect(given["redis"]), PREFIX, gateway.idle, given["number"], gateway.address)
    return serve(config, stopping, neighbours)


if __name__ == "__main__":
    sys.exit(guarded(part))
