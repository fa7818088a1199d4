"""Flower's address is printed when it answers there, and not before."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace

import pytest

from workers.config.schema import Config
from workers.launch.kinds import configured
from workers.launch.kinds.configured import ConfiguredMonitor


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_address_of_flower_is_printed_once_it_answers(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    before: list[int] = []  # number of lines printed so far, at each look in vain
    with socket.socket() as flower:
        flower.bind(("127.0.0.1", 0))  # and nothing listens yet
        port = flower.getsockname()[1]

        def sleep(seconds: float) -> None:
            before.append(len(said))
            if len(before) == 3:
                flower.listen()

        monkeypatch.setattr(configured, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        monitor = ConfiguredMonitor.__new__(ConfiguredMonitor)  # without the servers of a run
        monitor.config = Config(flower_port=port, flower_address=address)
        monitor.context = SimpleNamespace(say=said.append)  # type: ignore[assignment]
        monitor._wait_for_flower()
    assert before == [0, 0, 0] and said == [f"Flower at http://127.0.0.1:{port}"]
