"""Tests of streams over real sockets, plain and TLS: one thread reads while others write, without interference."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.peer import Peer, delivery

from tasks.amqp import frames
from tasks.amqp.stream import PARTS_AT_ONCE, Stream, TlsStream, stream

PIECE = bytes(range(256)) * 64  # 16 KiB
PIECES = 200  # per thread: several times a socket's buffers

Pair = Callable[[], tuple[Any, Any]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and its certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes a certificate, is not installed")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-keyout"]
    subprocess.run([*command, path, "-out", path.with_suffix(".crt")], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Return a function that makes two connected sockets, ours and the broker's."""

    def make() -> tuple[Any, Any]:
        near, far = socket.socketpair()
        if request.param == "plain":
            return near, far
        path = request.getfixturevalue("certificate")
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(path)
        calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        calling.check_hostname, calling.verify_mode = False, ssl.CERT_NONE
        ends = list[Any]()
        thread = threading.Thread(target=lambda: ends.append(serving.wrap_socket(far, server_side=True)))
        thread.start()
        near = calling.wrap_socket(near)
        thread.join()
        return near, ends[0]

    return make


def echo(sock: Any) -> None:
    """Send data back until the other end closes, in one thread: an SSL object allows only one."""
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def test_threads_that_write_and_one_that_reads_share_a_connection(pair):
    near, far = pair()
    found, received = stream(near), bytearray()
    threading.Thread(target=echo, args=(far,), daemon=True).start()

    def write(parts: bool) -> None:
        for _ in range(PIECES):
            if parts:
                found.write_parts([PIECE[:100], memoryview(PIECE)[100:]])
            else:
                found.write(PIECE)

    threads = [threading.Thread(target=write, args=(parts,), daemon=True) for parts in (False, True)]
    for thread in threads:
        thread.start()
    while len(received) < 2 * PIECES * len(PIECE):
        received += found.read(None) or b""
    for thread in threads:
        thread.join()
    assert bytes(received) == PIECE * (2 * PIECES)


def test_read_returns_none_without_data_and_empty_at_the_end(pair):
    near, far = pair()
    found = stream(near)
    assert found.read(0.0) is None and found.read_into(memoryview(bytearray(8)), 0.0) is None
    far.sendall(b"abcdefgh")
    room = memoryview(bytearray(8))
    assert found.read_into(room, 60.0) == 8 and bytes(room) == b"abcdefgh"
    if isinstance(far, ssl.SSLSocket):
        far.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):  # it sends its close and waits for ours
            far.unwrap()
    far.close()
    assert found.read(60.0) == b""


def test_many_parts_are_written_in_their_order(pair):
    near, far = pair()
    found = stream(near)
    parts = [bytes((number % 256,)) * 100 for number in range(3 * PARTS_AT_ONCE + 1)]
    found.write_parts(parts)
    received = b""
    while len(received) < 100 * len(parts):
        received += far.recv(1 << 16)
    assert received == b"".join(parts)


def test_no_two_threads_are_ever_within_one_ssl_object():
    class Watched:
        """A stand-in for an SSL socket that notes if two threads enter it at once."""

        def __init__(self) -> None:
            self.near, self.far = socket.socketpair()
            self.near.setblocking(False)
            self.busy, self.entered_twice = threading.Lock(), False

        def alone(self, act: Callable[[], Any]) -> Any:
            if not self.busy.acquire(blocking=False):
                self.entered_twice = True
                return act()
            try:
                for _ in range(2000):  # long enough for another thread to enter
                    pass
                return act()
            except BlockingIOError as error:
                raise ssl.SSLWantReadError from error
            finally:
                self.busy.release()

        def recv(self, size: int) -> bytes:
            return self.alone(lambda: self.near.recv(size))

        def send(self, data: bytes) -> int:
            return self.alone(lambda: self.near.send(data))

        def settimeout(self, seconds: float) -> None:
            pass

        def fileno(self) -> int:
            return self.near.fileno()

    watched = Watched()
    found = TlsStream(watched)  # type: ignore[arg-type]
    threading.Thread(target=echo, args=(watched.far,), daemon=True).start()
    writer = threading.Thread(target=lambda: [found.write(b"x" * 50) for _ in range(2000)], daemon=True)
    writer.start()
    left = 2000 * 50
    while left:
        left -= len(found.read(None) or b"")
    writer.join()
    assert not watched.entered_twice


def test_a_connection_over_tls_delivers_while_its_heartbeats_are_sent(pair):
    near, far = pair()
    peer = Peer(near=near, far=far)
    expected = Stream if not isinstance(near, ssl.SSLSocket) else TlsStream
    assert type(peer.link._stream) is expected
    stop = threading.Event()

    def beat() -> None:
        while not stop.is_set():
            peer.link.send(frames.HEARTBEAT_FRAME)

    def answer() -> None:
        for tag in range(1, 501):
            far.recv(1 << 16)
            far.sendall(delivery(tag, PIECE))
        while far.recv(1 << 16):
            pass

    threads = [threading.Thread(target=target, daemon=True) for target in (beat, answer)]
    for thread in threads:
        thread.start()
    tags = list[int]()
    while len(tags) < 500:
        for one in peer.link.drain(60.0):
            assert one.body == PIECE
            tags.append(one.tag)
    stop.set()
    threads[0].join()
    near.close()
    threads[1].join()
    assert tags == list(range(1, 501))


def test_a_read_ends_as_soon_as_its_waker_is_readable(pair):
    near, far = pair()
    found, (reader, writer) = stream(near), socket.socketpair()
    found.waker = reader.fileno()
    threading.Timer(0.05, writer.send, (b"x",)).start()
    longer = 3600.0  # s; longer than this test may take
    assert found.read(longer) is None and found.read_into(memoryview(bytearray(8)), longer) is None
    far.sendall(b"abcdefgh")
    assert found.read(60.0) == b"abcdefgh"
    for end in (near, far, reader, writer):
        end.close()
