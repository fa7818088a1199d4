"""An actor's view of its player's weights: the newest that arrived by event, or from the pool if it missed events."""

from __future__ import annotations

import threading
from typing import Any

from celery.utils.log import get_logger

from agents.checkpoints import weights_from_bytes
from league.models.pool import Pool
from tasks.events import WEIGHTS

logger = get_logger(__name__)


class NewestWeights:
    """Holds the newest weights of `player`; `receive` is the handler of the weights event. Thread-safe."""

    event = WEIGHTS

    def __init__(self, pool: Pool, player: str) -> None:
        self._pool, self.player = pool, player
        self._changed = threading.Condition()
        self.version = -1
        self._tensors: dict[str, Any] = {}
        self._stamp: dict[str, Any] = {}

    def receive(self, payload: dict[str, Any]) -> None:
        """Keep the weights of an event if they are this player's and newer."""
        if payload["player"] == self.player:
            self._keep(payload["version"], payload["data"])

    def fetch(self) -> None:
        """Read newer weights from the pool, at the start and after a lost connection, as no event brings them."""
        model = self._pool.newest(self.player, newer_than=self.version)
        if model is not None:
            self._keep(model.version, model.data)

    def stamped(self, newer_than: int = -1) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return (stamp, tensors), or None when there is nothing newer than `newer_than`."""
        with self._changed:
            return (self._stamp, self._tensors) if self.version > newer_than else None

    def wait_for(self, version: int, stopping: threading.Event, timeout: float) -> bool:
        """Wait until `version` or a newer one is here, by event or pool; False after `timeout` s or a stop."""
        waited, step = 0.0, 0.25
        while not stopping.is_set():
            with self._changed:
                if self._changed.wait_for(lambda: self.version >= version, timeout=step):
                    return True
            waited += step
            if waited >= timeout:
                return False
            self.fetch()  # the event may have passed while this actor was away
        return False

    def _keep(self, version: int, data: bytes) -> None:
        with self._changed:
            if version <= self.version:
                return
        tensors, stamp = weights_from_bytes(data)
        with self._changed:
            if version > self.version:
                self.version, self._tensors, self._stamp = version, tensors, stamp
                self._changed.notify_all()
