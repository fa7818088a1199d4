"""Gathered sampling: one chord of rollouts a round; the update that its results make starts the next one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from tasks.client.chord import gather

logger = get_logger(__name__)

FAILURES = 3  # rounds that may fail in a row before the run is given up


class Rounds:
    """Keeps one round under way. A round that neither returned nor failed within `timeout` s is dispatched anew.

    `actors` tells how many rollouts a round has. `player` learns from the rounds, at `queue`; None for the one player
    of a run without a league. While `held`, what is dispatched waits for `release`.
    """

    def __init__(
        self,
        app: Any,
        actors: Callable[[], int],
        timeout: float,
        on_given_up: Callable[[str], None],
        player: str | None = None,
        queue: Any = None,
    ) -> None:
        self._app, self._actors, self._timeout, self._on_given_up = app, actors, timeout, on_given_up
        self._player = () if player is None else (player,)
        # Not the queue itself, which a message cannot carry: its body travels with the calls of the header.
        self._address = {} if queue is None else {"exchange": queue.exchange.name, "routing_key": queue.routing_key}
        self.held = False
        self.current: str | None = None
        self.lost = 0
        self._version = 0
        self._failures = 0
        self._dispatched_at = 0.0
        self._waiting = self._withheld = False
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._watch = threading.Thread(target=self._watchdog, name="rounds", daemon=True)

    def start(self, version: int) -> None:
        """Dispatch the first round and watch over all."""
        self.dispatch(version)
        self._watch.start()

    def stop(self) -> None:
        """Dispatch no more."""
        self._stopping.set()

    def dispatch(self, version: int) -> None:
        """Ask every actor for a rollout with weights of `version`; the learn task gets them all in one call."""
        if self._stopping.is_set():
            return
        with self._lock:
            if self.held:
                self._version, self._waiting, self._withheld = version, False, True
                return
            self._version, self._dispatched_at, self._waiting = version, time.monotonic(), True
            self.current = f"{version}-{uuid.uuid4().hex[:8]}"
            rollout = self._app.signature(
                "actor.rollout",
                args=(self.current, version, *self._player),
                options={"expires": self._timeout, "ignore_result": True, "argsrepr": "", "kwargsrepr": ""},
            )
            learn = self._app.signature(
                "learner.learn", options={"ignore_result": True, "argsrepr": "", **self._address}
            )
            failed = self._app.signature(
                "learner.round_failed", args=(self.current,), immutable=True, options=dict(self._address)
            )
            gather(self._app, [rollout.clone() for _ in range(self._actors())], then=learn, on_error=failed)

    def hold(self) -> None:
        """Dispatch nothing until `release`; the round under way may come back."""
        self.held = True

    def release(self) -> None:
        """Undo `hold`, and dispatch what it held back."""
        with self._lock:
            self.held, withheld, self._withheld = False, self._withheld, False
        if withheld:
            self.dispatch(self._version)

    def returned(self, round_id: str) -> bool:
        """A round came back whole; False when it is not the current one (it had been given up) and must not be used."""
        if round_id != self.current:
            return False
        self._waiting, self._failures = False, 0
        return True

    def failed(self, round_id: str) -> None:
        """A rollout of `round_id` raised: try again, a few times."""
        if round_id != self.current:
            return
        self._failures += 1
        logger.error("round %s failed (%d in a row); the actor's log has the error", round_id, self._failures)
        if self._failures >= FAILURES:
            self._on_given_up(f"{FAILURES} rounds in a row failed in the actors")
        else:
            self.dispatch(self._version)

    def _watchdog(self) -> None:
        while not self._stopping.wait(1.0):
            if self._waiting and time.monotonic() - self._dispatched_at > self._timeout:
                self.lost += 1
                logger.warning(
                    "round %s did not come back within %.0f s; dispatching anew", self.current, self._timeout
                )
                try:
                    self.dispatch(self._version)
                except Exception as error:  # the broker may be away: the next look tries again
                    logger.warning("could not dispatch: %s", error)
