"""Deadlines: an expired or revoked call is dropped when its turn comes."""

from __future__ import annotations

from datetime import UTC, datetime

from celery.worker import state as worker_state

from tasks.amqp.messages import EXPIRES_BYTES
from tasks.app.outcome import EXPIRED, REVOKED
from tasks.app.revoking import is_revoked
from tasks.worker.middleware import Middleware
from tasks.worker.service_queue import Call, ServiceQueue


class Deadlines(Middleware):
    """Drops calls that expired or were revoked. `read_clock` is called whenever time may have passed."""

    def __init__(self) -> None:
        self._now = ""
        self.read_clock()

    def read_clock(self) -> None:
        """Read the clock for the comparisons that follow: reading it for every call would cost more than comparing."""
        self._now = datetime.now(UTC).isoformat(timespec="microseconds")

    def before_run(self, queue: ServiceQueue, call: Call) -> str | None:
        """See Middleware."""
        headers = call.properties.headers
        expires = headers.get("expires")
        if expires and is_past(expires, self._now):
            return EXPIRED
        if (worker_state.revoked or worker_state.revoked_stamps) and is_revoked(headers):
            return REVOKED
        return None


def is_past(expires: str, now: str) -> bool:
    """Return whether `expires` (ISO 8601) is before `now` (ISO 8601, UTC, EXPIRES_BYTES long)."""
    if len(expires) == EXPIRES_BYTES and expires.endswith("+00:00"):
        return expires < now  # the same form sorts as text
    moment = datetime.fromisoformat(expires)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) < datetime.now(UTC)
