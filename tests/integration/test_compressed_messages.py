"""Test of compressed messages to every queue, a thousand times larger unpacked: no process unpacks them."""

from __future__ import annotations

import bz2
import functools
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import launched
from support.calling import Calling
from support.waiting import until

from tasks import codec
from tasks.events import EventDispatcher
from tasks.topology import address
from workers.servers import Servers

UNPACKED = 256 << 20  # bytes
MOST = UNPACKED >> 2  # bytes by which a process may grow


@functools.cache
def bodies() -> dict[str, bytes]:
    """Return compressor -> a compressed body of zeros."""
    zeros = bytes(UNPACKED)
    return {
        "gzip": zlib.compress(zeros),
        "bzip2": bz2.compress(zeros, 1),
        "lzma": lzma.compress(zeros, preset=0),
    }


@pytest.fixture(params=["rabbitmq", "embedded"])
def run(request: pytest.FixtureRequest, run_name: str, tmp_path: Path) -> Iterator[Calling]:
    """Yield a run with a worker of services and a learner, on RabbitMQ and on a Redis."""
    servers: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    calling = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        calling.start(1)
        calling.start_learner("learner")
        until(lambda: b"ready" in (tmp_path / "learner.log").read_bytes())
        yield calling
    finally:
        calling.close()


def peak(process: launched.Process) -> int:
    """Return the process's peak memory in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


def works(run: Calling, number: int) -> None:
    """Check that all processes run and deal with a call, a one-way call, a segment, an event and a command."""
    assert [process.poll() for process in run.processes] == [None, None]
    assert run.solver.call("actor.add", number, 2) == number + 2
    run.solver.call("actor.push", "alive")
    run.app.send_task("learner.learn", args=("segment",), ignore_result=True, **address(run.topology.learner_queue()))
    until(lambda: run.ran("alive") == number and run.ran("segment") == number)
    EventDispatcher(run.app, run.topology).fire("counted", number)
    until(lambda: run.solver.call("actor.events_received")[0][-1:] == [number])
    until(lambda: len(run.app.control.ping(timeout=30.0, limit=2)) == 2)


def refusals(run: Calling) -> tuple[int, bool]:
    """Return the number of refused messages other than events, and whether events were refused: few are logged."""
    logs = "".join(path.read_text() for path in run.folder.glob("*.log"))
    for message in ("subscribing anew", "connecting anew", "Unrecoverable"):
        assert message not in logs
    lines = [line for line in logs.splitlines() if "it is compressed" in line]
    events = ["a message of an event is refused" in line for line in lines]
    return events.count(False), any(events)


def test_compressed_messages_are_refused_and_memory_stays_flat(run):
    topology = run.topology
    works(run, 1)
    before = [peak(process) for process in run.processes]
    control = run.app.control.mailbox.exchange
    targets = [
        (topology.service, "actor.add", "actor.add"),
        (topology.service, "actor.push", "actor.push"),
        (topology.learner, "learner.main", "learner.learn"),
        (topology.event("counted"), "", ""),
        (control, "", ""),
    ]
    with run.app.connection_for_write() as connection, connection.channel() as channel:
        for name, body in bodies().items():
            for exchange, key, task in targets:
                connection.Producer(channel).publish(
                    body, exchange=exchange, routing_key=key, declare=[exchange],
                    content_type=codec.CONTENT_TYPE, content_encoding="binary",
                    headers={"task": task, "id": f"compressed-{name}", "lang": "py", "compression": name},
                )  # fmt: skip
    works(run, 2)
    # Both processes receive a command. On RabbitMQ, events bypass kombu, so none is refused as compressed.
    others = 5 * len(bodies()), not run.broker_url.startswith("amqp")
    until(lambda: refusals(run) == others)
    works(run, 3)
    grown = [peak(process) - earlier for process, earlier in zip(run.processes, before, strict=True)]
    assert max(grown) < MOST, grown
