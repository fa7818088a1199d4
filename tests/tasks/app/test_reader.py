"""Tests that senders use shared memory only if the reader sees the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.shared_place import shared_place

from tasks.app import reader as module
from tasks.app.reader import Reader, ReaderHere, remove_shared, token_key
from tasks.codec import shared_memory
from tasks.topology import Topology

RUN = Topology("shared")
QUEUE = RUN.learner_queue()


class Redis(dict[str, bytes]):
    """A stand-in for Redis, with the commands that readers use."""

    away = False

    def set(self, key: str, value: str, nx: bool = False, ex: int | None = None) -> None:
        if not (nx and key in self):
            self[key] = value.encode()

    def get(self, key: str, default: Any = None) -> Any:
        if self.away:
            raise redis.ConnectionError("away")
        return super().get(key, default)

    def delete(self, key: str) -> None:
        self.pop(key, None)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(module, "READ_EVERY", 0.0)
    with shared_place(monkeypatch) as path:
        yield path


@pytest.fixture
def client() -> Any:
    return Redis()


def test_a_reader_on_this_host_is_found_until_it_leaves(place: Path, client: Any) -> None:
    reader, here = Reader(client, RUN, QUEUE, 3600), ReaderHere(client, RUN, QUEUE)
    assert here() is None, "there was a reader before any was announced"
    assert reader.announce() and reader.announce()
    folder = here()
    assert folder is not None and folder.is_ours()
    assert ReaderHere(client, RUN, RUN.learner_queue("another"))() is None
    name = folder.write(b"sent before it left")
    reader.leave()
    assert here() is None
    assert [path.name for path in folder.path.iterdir()] == [name], "bodies went with their reader"
    another = Reader(client, RUN, QUEUE, 3600)
    assert another.announce()
    assert (found := here()) is not None and found.path == folder.path
    reader.leave()
    assert here() is not None, "an earlier reader withdrew the next one's announcement"


def test_a_reader_with_other_shared_memory_is_ignored(
    place: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Reader(client, RUN, QUEUE, 3600).announce()
    here = ReaderHere(client, RUN, QUEUE)
    with shared_place(monkeypatch):  # as in a container with its own /dev/shm
        assert here() is None
    monkeypatch.setenv(shared_memory.PLACE, "off")
    assert here() is None


def test_a_reader_without_shared_memory_announces_nothing(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_memory.PLACE, "off")
    reader = Reader(client, RUN, QUEUE, 3600)
    assert not reader.announce()
    assert not [key for key in client if "reader" in key]
    reader.leave()


@pytest.mark.parametrize("said", [b"", b"../../etc reader-aaaaaaaaaaaaaaaa", b"a" * 16 + b" ../../x", b"\xff" * 40])
def test_an_invalid_announcement_is_ignored(place: Path, client: Any, said: bytes) -> None:
    client[f"{RUN.key_prefix}reader:{QUEUE.routing_key}"] = said
    assert ReaderHere(client, RUN, QUEUE)() is None


def test_while_redis_is_away_bodies_go_by_claim_check(place: Path, client: Any) -> None:
    assert Reader(client, RUN, QUEUE, 3600).announce()
    client.away = True
    assert ReaderHere(client, RUN, QUEUE)() is None


def test_a_run_that_is_removed_leaves_nothing(place: Path, client: Any) -> None:
    assert Reader(client, RUN, QUEUE, 3600).announce()
    folder = ReaderHere(client, RUN, QUEUE)()
    assert folder is not None and folder.write(b"never received")
    remove_shared(client, RUN)
    assert list(place.iterdir()) == []
    remove_shared(client, RUN)
    client[token_key(RUN)] = b"../../x"
    remove_shared(client, RUN)
