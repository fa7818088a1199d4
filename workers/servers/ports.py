"""Ports of this machine: free ones, taken ones and their holders."""

from __future__ import annotations

import contextlib
import random
import socket
from collections import deque

import psutil

from warren.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
# Below those that Linux and macOS give to outgoing connections: one of these may take a port while its server is down.
NAMED = range(20_000, 32_768)
ATTEMPTS = 100
_given: deque[int] = deque(maxlen=100)  # the last free ports
_random = random.SystemRandom()  # processes with the same seed would name the same ports


def free_port() -> int:
    """Return a TCP port that is free on loopback, and none of the last 100; another process may still take it first."""
    for attempt in range(ATTEMPTS + 1):
        port = _random.choice(NAMED) if attempt < ATTEMPTS else 0  # at last, any that the kernel has
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            port = int(probe.getsockname()[1])
            if port not in _given:  # nothing listens there yet, so that it may be found again
                _given.append(port)
                return port
    raise ConfigurationError(f"this machine has no free TCP port on {LOOPBACK}; close programs that hold many of them")


def listens(port: int) -> bool:
    """Return whether anything accepts connections at `port` on loopback."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def require_free(port: int, server: str) -> None:
    """Raise ConfigurationError, naming the holder if it can be seen, if `port` on loopback is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections in TIME_WAIT do not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port}, asked for {server}, cannot be used{_holder(port)} ({error.strerror}); "
                "use another port, or none for any free one"
            ) from None


def _holder(port: int) -> str:
    """Return ": it is held by PROGRAM (process PID)" if this user may see that, else ""."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and port in connection.laddr and connection.pid:
                return f": it is held by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    return ""
