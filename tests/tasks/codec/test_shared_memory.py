"""Tests of long bodies in shared memory: written once, mapped by name, and removed once not needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.claims import uninstall_claims
from support.shared_place import shared_place

from tasks import codec
from tasks.codec import claim_check, shared_memory
from tasks.codec.claim_check import ClaimStore
from tasks.codec.shared_memory import SharedFolder, new_token, sweep_all
from warren.errors import ClaimError

BODY = bytes(range(256)) * 8192  # 2 MiB


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with shared_place(monkeypatch) as path:
        yield path


@pytest.fixture
def folder(place: Path) -> SharedFolder:
    made = SharedFolder(new_token())
    assert made.make()
    return made


def test_a_body_is_read_without_a_copy_and_stays_readable_after_unlink(folder: SharedFolder) -> None:
    name = folder.write(BODY)
    assert name is not None
    view = SharedFolder(folder.token).map(name, len(BODY))
    assert view.readonly and view == BODY
    folder.unlink(name)
    folder.unlink(name)
    assert view == BODY and list(folder.path.iterdir()) == []
    with pytest.raises(ClaimError, match="cannot be read: No such file"):
        folder.map(name, len(BODY))


def test_other_users_may_not_read_the_folder_or_its_files(folder: SharedFolder) -> None:
    name = folder.write(BODY)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert (folder.path / str(name)).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "name", ["../x", "", "a" * 31, "A" * 32, "a" * 32 + "\n", "reader-" + "a" * 16, "a" * 32 + ".part"]
)
def test_an_invalid_name_is_refused(folder: SharedFolder, name: str) -> None:
    for act in (lambda: folder.map(name, 1), lambda: folder.unlink(name)):
        with pytest.raises(ClaimError, match="names nothing in shared memory"):
            act()


@pytest.mark.parametrize("token", ["../../../tmp", "", "a" * 15, "a" * 16 + "/x", "A" * 16])
def test_an_invalid_token_is_refused(place: Path, token: str) -> None:
    with pytest.raises(ClaimError, match="names no folder of shared memory"):
        SharedFolder(token)


def test_a_file_of_another_size_and_a_link_are_refused(folder: SharedFolder, tmp_path: Path) -> None:
    name = folder.write(BODY)
    assert name is not None
    with pytest.raises(ClaimError, match="is damaged: it has 2097152 bytes, where 5 were sent"):
        folder.map(name, 5)
    secret = tmp_path / "secret"
    secret.write_bytes(b"12345")
    link = "b" * 32
    (folder.path / link).symlink_to(secret)
    with pytest.raises(ClaimError, match="cannot be read"):
        folder.map(link, 5)


def test_a_folder_that_others_may_enter_is_not_used(place: Path) -> None:
    token = new_token()
    (place / f"warren-{os.geteuid()}-{token}").mkdir(mode=0o755)
    assert not SharedFolder(token).make()
    mark = "reader-" + "a" * 16
    (place / f"warren-{os.geteuid()}-{token}" / mark).touch()
    assert not SharedFolder(token).has_mark(mark)


def test_no_more_than_half_of_the_memory_is_used(folder: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    found = namedtuple("found", "f_frsize f_blocks f_bavail")
    monkeypatch.setattr(os, "statvfs", lambda path: found(4096, 16384, 8192 + len(BODY) // 4096))
    assert folder.write(BODY) is not None
    monkeypatch.setattr(os, "statvfs", lambda path: found(4096, 16384, 8191 + len(BODY) // 4096))
    assert folder.write(BODY) is None


def test_a_write_that_fails_leaves_nothing(folder: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_memory.os, "write", full)
    assert folder.write(BODY) is None
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("given", ["off", "relative", "/dev/shm/is/not/there"])
def test_without_shared_memory_nothing_is_written(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(shared_memory.PLACE, given)
    folder = SharedFolder(new_token())
    assert not folder.make() and folder.write(BODY) is None
    folder.sweep(0)
    folder.remove()
    sweep_all(0)
    with pytest.raises(ClaimError, match="has no shared memory"):
        folder.map("a" * 32, 5)


def test_old_files_and_unused_folders_are_removed(place: Path, folder: SharedFolder) -> None:
    old, new = folder.write(BODY), folder.write(BODY)
    assert folder.mark("reader-" + "a" * 16)
    before = time.time() - 7200
    os.utime(folder.path / str(old), (before, before))
    (place / "another").mkdir()
    (folder.path / "of another program").touch()
    sweep_all(3600)
    assert {path.name for path in folder.path.iterdir()} == {new, "reader-" + "a" * 16, "of another program"}
    (folder.path / "of another program").unlink()
    sweep_all(-1)
    assert [path.name for path in place.iterdir()] == ["another"]


WRITER = """
import os, signal, sys
from tasks.codec.shared_memory import SharedFolder
write = os.write
def half(file, data):
    write(file, data[:1000])
    print("half", flush=True)
    signal.pause()
os.write = half
SharedFolder(sys.argv[1]).write(bytes(100_000))
"""


def test_partial_files_are_removed_once_their_process_is_dead(folder: SharedFolder) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, folder.token], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stdout.readline() == "half\n"
    folder.sweep(3600)
    (part,) = folder.path.iterdir()
    assert part.suffix == ".part"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    folder.sweep(3600)
    assert not folder.path.exists()


class Redis:
    """A stand-in for Redis, which holds claims that are not in shared memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.set, self.get = lambda key, body, px: self.kept.update({key: body}), self.kept.get
        self.unlink, self.exists = lambda key: self.kept.pop(key, None), self.kept.__contains__

    def get_encoder(self) -> object:
        return type("Encoder", (), {"decode_responses": False})


@pytest.fixture
def store() -> Iterator[ClaimStore]:
    made = claim_check.install(ClaimStore(Redis(), f"warren.{new_token()}:claim:", 60.0))  # type: ignore[arg-type]
    yield made
    uninstall_claims(made)


def test_a_claim_waits_in_shared_memory_until_it_is_released(folder: SharedFolder, store: ClaimStore) -> None:
    value = {"observation": np.arange(1_000_000, dtype=np.float32)}
    with claim_check.shared(lambda: folder):
        stub = codec.encode(value, store)
    assert len(stub) < 200 and store.client.kept == {}  # type: ignore[attr-defined]
    found = codec.decode(stub)["observation"]
    assert codec.decode(stub)["observation"].sum() == found.sum(), "a redelivered stub reads another body"
    claim_check.release(stub)
    assert list(folder.path.iterdir()) == []
    assert np.array_equal(found, value["observation"])
    with pytest.raises(ClaimError):
        codec.decode(stub)


def test_without_shared_memory_bodies_wait_in_redis(store: ClaimStore) -> None:
    with claim_check.shared(lambda: None):
        stub = codec.encode(BODY, store)
    assert len(store.client.kept) == 1 and codec.decode(stub) == BODY  # type: ignore[attr-defined]


def test_a_body_that_was_not_sent_leaves_no_file(folder: SharedFolder, store: ClaimStore) -> None:
    made: claim_check.Made = []
    with claim_check.shared(lambda: folder):
        for _ in range(2):
            with claim_check.once(made):
                codec.encode(BODY, store)
        assert len(list(folder.path.iterdir())) == 1, "a second try wrote another file"
        claim_check.forget(made)
        with claim_check.once():
            codec.encode(BODY, store)
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize(
    "rest", ["shared.", "shared.../../x", "shared.aaaaaaaaaaaaaaaa.../../etc/passwd", "shared.x.y"]
)
def test_a_hostile_claim_reads_and_removes_nothing(place: Path, store: ClaimStore, rest: str) -> None:
    import msgpack

    stub = b"WRC\x01" + msgpack.packb((f"{store.prefix}{rest}", 5, 0))
    claim_check.release(stub)
    with pytest.raises(ClaimError, match=r"names no folder|names nothing"):
        codec.decode(stub)
