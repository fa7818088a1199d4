"""A proxy of a broker's TCP port that loses connections, accepts none, or passes nothing on."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Wire:
    """A proxy of the port in `url`; `self.url` leads through it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._to = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{self.port}")
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._passes = threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self) -> None:
        """Disconnect the clients; the broker's sides stay open."""
        for client, _ in self._pairs:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Pass nothing on from now on, also for new connections."""
        self._passes.clear()

    def speak(self) -> None:
        """Pass on what was held up, and all that follows."""
        self._passes.set()

    def close(self) -> None:
        """Disconnect everything and accept no more connections."""
        self.lose()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, which else would accept one more
        for end in (self._listener, *(end for pair in self._pairs for end in pair)):
            end.close()
        self._passes.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._to)
            self._pairs.append((client, broker))
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._passes.wait()
                sink.sendall(data)
        except OSError:
            return
