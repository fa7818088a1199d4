"""A connection that is made when first needed and again when it was lost, for as long as its owner has patience."""

from __future__ import annotations

import time
from collections.abc import Callable

from celery.utils.log import get_logger

from tasks.brokers import GONE, Broker, Connection
from warren.errors import BrokerError

logger = get_logger(__name__)

RECONNECT_AFTER = 0.2  # s between attempts to reach a broker that is away
LOOKS_AWAY = 5.0  # s without a look at the broker, or the patience if that is longer, after which it may have been back


class Reconnector:
    """`prepare` is called with each new connection, before anybody else sees it. One thread at a time connects."""

    def __init__(self, broker: Broker, prepare: Callable[[Connection], None], patience: float) -> None:
        self._broker, self._prepare, self._patience = broker, prepare, patience
        self.link: Connection | None = None
        self._away_since: float | None = None
        self._next_try = 0.0
        self._blocked_since: float | None = None
        self._blocked_at = 0.0  # when it was last found so
        self._looks_away = max(patience, LOOKS_AWAY)

    def connect(self, limit: float) -> Connection | None:
        """Try once to connect, after the pause since the last try; return None, by `limit`, when that fails.

        Raises BrokerError once the broker has been away for longer than the patience, ConfigurationError when an entity
        exists there with other arguments than declared.
        """
        if (pause := self._next_try - time.monotonic()) > 0:
            time.sleep(max(0.0, min(pause, limit - time.monotonic())))
            if time.monotonic() < self._next_try:
                return None
        link: Connection | None = None
        began = time.monotonic()
        try:
            link = self._broker.connect()
            self._prepare(link)
        except BaseException as error:
            if link is not None:
                link.discard()
            if not isinstance(error, GONE):
                raise
            now = time.monotonic()
            if self._away_since is None or began - self._next_try > self._looks_away:
                self._away_since = now
            self._next_try = now + RECONNECT_AFTER
            if now - self._away_since > self._patience:
                raise BrokerError(f"the broker has been away for {now - self._away_since:.1f} s: {error}") from error
            return None
        self.link, self._away_since, self._blocked_since = link, None, None
        return link

    def lost(self, link: Connection) -> bool:
        """Drop `link`; False when it is not the present one any more."""
        link.discard()
        if self.link is not link:
            return False
        self.link = None
        return True

    def blocked_too_long(self) -> BrokerError | None:
        """Return the error for a broker that has taken no messages for longer than the patience, else None."""
        link = self.link
        if link is None or not link.blocked:
            self._blocked_since = None
            return None
        now = time.monotonic()
        if self._blocked_since is None or now - self._blocked_at > self._looks_away:
            self._blocked_since = now
        self._blocked_at = now
        if now - self._blocked_since <= self._patience:
            return None
        return BrokerError(
            f"the broker has taken no messages for {now - self._blocked_since:.1f} s: {link.blocked}; "
            "free some there, or raise its limit (vm_memory_high_watermark, disk_free_limit)"
        )

    def close(self) -> None:
        """Close the connection; the next `connect` makes a new one."""
        if self.link is not None:
            self.link.close()
            self.link = None
