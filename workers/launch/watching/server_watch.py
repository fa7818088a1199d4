"""Watches of the run's servers, each in a thread: a paused server must not block the launcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.admin.cleanup import Depths
from tasks.app.dead_letters import declare_queues
from warren import redis_client

POLL_EVERY = 1.0  # s
LATE = 4.0  # s without an answer after which a server counts as away
ENDS_WITHIN = 5.0  # s that a check in flight may take
RENEWED_EVERY = 3600.0  # s after which the queues of dead letters are declared again: unused queues expire
AFTERMATH = 20.0  # s after an outage in which a process may still die of it: processes wait about 12 s for Redis


class ServerThread:
    """The watch of one server. `ask` returns whether it answers."""

    def __init__(self, name: str, ask: Callable[[], bool]) -> None:
        self.name, self._ask = name, ask
        self._answered_at, self._outage_ended = time.monotonic(), float("-inf")
        self._refused = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Start checking."""
        self._answered_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; does not wait for a server that is away."""
        self._stopping.set()

    def ended(self, within: float) -> bool:
        """Return whether the thread has ended, waiting up to `within` s."""
        if self._thread.ident is not None:
            self._thread.join(within)
        return not self._thread.is_alive()

    @property
    def away_for(self) -> float:
        """Return the seconds for which the server has been away; 0 while it answers."""
        silent = time.monotonic() - self._answered_at
        return silent if silent > LATE or self._refused else 0.0

    @property
    def excuses(self) -> bool:
        """Return whether the server is away, or was within the last AFTERMATH s."""
        return self.away_for > 0 or time.monotonic() - self._outage_ended < AFTERMATH

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                answered = self._ask()
            except Exception:  # any error means no answer
                answered = False
            now = time.monotonic()
            if answered:
                if self._refused or now - self._answered_at > LATE + POLL_EVERY:
                    self._outage_ended = now
                self._answered_at = now
            self._refused = not answered
            self._stopping.wait(POLL_EVERY)


class ServerWatch:
    """The watches of both servers, and the lengths of the queues; `depths` is empty while they are unknown."""

    def __init__(self, app: Any, redis_url: str, depths: Depths) -> None:
        self._depths, self.depths = depths, dict[str, int]()
        self._app = app
        self._connection: Any = None
        self._renewed_at = time.monotonic()
        self._redis = redis_client.connect(
            redis_url, retry=Retry(NoBackoff(), 0), socket_timeout=LATE, socket_connect_timeout=LATE
        )
        self._servers = [ServerThread("Redis", self._redis_answers), ServerThread("the broker", self._broker_answers)]

    def start(self) -> None:
        """Start checking."""
        for server in self._servers:
            server.start()

    def stop(self) -> None:
        """Stop checking."""
        for server in self._servers:
            server.stop()

    def away(self) -> list[str]:
        """Return a text for each server that is away, with the time since then."""
        return [f"{server.name} is away for {server.away_for:.0f} s" for server in self._servers if server.away_for]

    def away_for(self) -> dict[str, float]:
        """Return server -> s for which it has been away, 0 while it answers."""
        return {server.name: server.away_for for server in self._servers}

    def depths_now(self) -> dict[str, int]:
        """Return the present lengths of the queues; empty if unknown. Call `stop` before."""
        broker = self._servers[1]
        return self._depths.read() if broker.ended(ENDS_WITHIN) else {}

    @property
    def redis_away(self) -> bool:
        """Return whether Redis is away."""
        return self._servers[0].away_for > 0

    def excuses(self) -> bool:
        """Return whether an absent server may be why a process died just now."""
        return any(server.excuses for server in self._servers)

    def _redis_answers(self) -> bool:
        return bool(self._redis.ping())

    def _broker_answers(self) -> bool:
        try:
            if self._connection is None:
                self._connection = self._app.connection_for_read()
            # Without limits, kombu would retry for many seconds.
            self._connection.ensure_connection(max_retries=1, interval_start=0)
            if self._connection.transport.driver_type == "redis":
                self._connection.default_channel.client.ping()
            else:
                self._connection.channel().close()
        except Exception:
            self.depths, connection, self._connection = {}, self._connection, None
            if connection is not None:
                connection.release()
            raise
        self.depths = self._depths.read()  # empty if the queues do not exist, as in a run from a file
        if self.depths and time.monotonic() - self._renewed_at > RENEWED_EVERY:
            declare_queues(self._connection, self._app.warren_topology)
            self._renewed_at = time.monotonic()
        return True
