"""Tests of two ranks joined only by a network: a network namespace stands for the other host."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from support.waiting import until
from test_allreduce import SCRIPT, Processes

from workers.learning.allreduce import horovod_ring
from workers.servers.ports import free_port


class TwoHosts(Processes):
    """Learner 0 and Redis are on this host; the others are in the namespace and reach Redis at `address`."""

    def __init__(self, port: int, prefix: str, backend: str, namespace: str, address: str) -> None:
        super().__init__(f"redis://127.0.0.1:{port}", prefix, backend)
        self.there = f"redis://{address}:{port}"
        self.namespace = namespace

    def start(self, learner: int, expected: int = 2) -> subprocess.Popen[bytes]:
        if not learner:
            return super().start(learner, expected)
        script = [sys.executable, str(SCRIPT), self.there, self.prefix, str(learner), str(expected), self.backend]
        command = ["ip", "netns", "exec", self.namespace, *script]
        self.started.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        return self.started[-1]


def ip(*arguments: str) -> bool:
    return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture(params=["torch", "horovod"])
def hosts(request: pytest.FixtureRequest, run_name: str, tmp_path: Path) -> Iterator[TwoHosts]:
    if request.param == "horovod" and not horovod_ring.spans_machines():
        pytest.skip("Horovod is not there as `make horovod` builds it")
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    if server is None or os.geteuid() or shutil.which("ip") is None:
        pytest.skip("a network namespace takes root, iproute2 and a Redis server")
    pid = os.getpid()
    name, here, there = f"warren-{pid}", f"wh{pid}", f"wt{pid}"
    net = f"10.{200 + pid % 50}.{pid // 50 % 250}"
    if not ip("netns", "add", name):
        pytest.skip("this machine lets nobody make network namespaces")
    with contextlib.ExitStack() as stack:
        stack.callback(ip, "netns", "del", name)
        assert ip("link", "add", here, "type", "veth", "peer", "name", there)
        stack.callback(ip, "link", "del", here)
        assert ip("link", "set", there, "netns", name)
        assert ip("addr", "add", f"{net}.1/24", "dev", here) and ip("link", "set", here, "up")
        assert ip("-n", name, "addr", "add", f"{net}.2/24", "dev", there)
        assert ip("-n", name, "link", "set", there, "up") and ip("-n", name, "link", "set", "lo", "up")
        port = free_port()
        line = [server, "--port", str(port), "--bind", "127.0.0.1", f"{net}.1", "--protected-mode", "no", "--save", ""]
        own = subprocess.Popen([*line, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
        stack.callback(own.wait)
        stack.callback(own.kill)
        made = TwoHosts(port, run_name, request.param, name, f"{net}.1")
        stack.callback(made.end)

        def answers() -> bool:
            with contextlib.suppress(redis.ConnectionError):
                return bool(made.client.ping())
            return False

        until(answers, "Redis")
        yield made


def test_ranks_on_two_hosts_average_and_a_remaining_one_goes_on(hosts: TwoHosts) -> None:
    ranks = [hosts.start(learner) for learner in range(2)]
    for learner in range(2):
        assert hosts.in_ring(learner, 2) == {"rank": learner, "size": 2, "good": True, "updates": 1}
    assert hosts.client.smembers(f"{hosts.prefix}:backends:2") == {hosts.backend.encode()}
    ranks[1].kill()
    assert hosts.in_ring(0, 1)["good"]
    hosts.start(1)
    assert hosts.in_ring(1, 2, times=2)["good"]
