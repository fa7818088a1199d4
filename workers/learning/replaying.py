"""Learning from a replay: arrivals are stored, and updates follow at a limiter's pace, also while nothing arrives.

With gathered sampling, whose next round waits for the weights, there is no thread: the learn task makes all updates
that its arrivals pay for. Otherwise a thread (`start`) makes the updates. Then the learn task waits while too few
samples were drawn, and returns as soon as its segments are stored, so that their messages are acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from celery.utils.log import get_logger

from workers.learning.allreduce.ranks import Stopping
from workers.learning.data_source import Arrival
from workers.learning.delivery import Delivery
from workers.learning.outlets import Outlets
from workers.learning.player_state import PlayerState
from workers.learning.replay_source import ReplaySource
from workers.learning.updater import Updater
from workers.runtime.segment_ledger import HELD

logger = get_logger(__name__)

LOOK_EVERY = 0.25  # s between checks of whether to stop, while waiting
TELL_EVERY = 0.05  # s between the steps that follow updates: weights to actors, figures, checkpoints


class Replaying:
    """The loop of one player's learner with a replay.

    `after(publishing, telling)` runs the steps that follow updates, with new weights for actors and with figures;
    `over` returns whether training has ended.
    """

    def __init__(
        self,
        state: PlayerState,
        outlets: Outlets,
        updater: Updater,
        source: ReplaySource,
        after: Callable[[bool, bool], None],
        over: Callable[[], bool],
    ) -> None:
        self._state, self._outlets, self._updater, self._source = state, outlets, updater, source
        self._after, self._over = after, over
        self._turn = threading.Condition()  # its holder changes the player's state
        self._arriving = False  # segments are to be stored next
        self._stopped = False
        self._tell_at = 0.0
        self._untold = False  # updates were made, and `after` was not called yet
        self._thread: threading.Thread | None = None

    # Arrivals.

    def learn(self, calls: Sequence[Any], delivery: Delivery) -> list[Any]:
        """Store the payloads of `calls`, and without a thread make the updates that they pay for; return the outcomes.

        Raises Stopping if it was told to stop before there was room, and what an update raises.
        """
        steps = sum(_steps(payload) for call in calls for payload in (call if isinstance(call, list) else [call]))
        self._arriving = True
        with self._turn:
            self._arriving = False
            if self._thread is not None:
                while not self._turn.wait_for(lambda: self._may_store(steps), LOOK_EVERY):
                    pass  # `stop` does not notify: it must not wait for the end of an update
                if self._stopped:
                    raise Stopping("this learner ends before it had room for more segments in its replay")
            outcomes = self._store(delivery)
            if self._thread is None:
                self._make_updates()
            elif not self._source.ready():
                self._tell()
            self._turn.notify_all()
            return outcomes

    def _may_store(self, steps: int) -> bool:
        return self._stopped or self._over() or self._source.has_room(steps)

    def _store(self, delivery: Delivery) -> list[Any]:
        taken: list[Arrival] = []

        def take(arrived: Arrival) -> str | None:
            if self._over():
                return "unused"
            if self._source.holds(arrived):
                return HELD
            self._source.add(arrived, self._state.progress.version)
            taken.append(arrived)
            self._count(arrived)
            return None

        with self._outlets.timing.stage("check and store"):
            delivery.read(self._state.spec, take)
        delivery.stored(taken)
        self._outlets.settle(delivery.became)
        return delivery.outcomes()

    def _count(self, arrived: Arrival) -> None:
        """Count the steps and episodes of a segment: schedules, figures and the run's end follow what has arrived."""
        progress, payload = self._state.progress, arrived.payload
        progress.start(payload["first_step_at"])
        progress.data_age = time.time() - payload["collected_at"]
        progress.add(arrived.trajectory.episodes, arrived.trajectory.num_steps, self._state.figures)

    # Updates.

    def _make_updates(self) -> None:
        made = False
        while self._may_update():
            self._update()
            made = True
        if not made:  # the next round needs another version, or a deterministic actor would repeat this one
            self._state.progress.version = self._outlets.next_version()
        self._after(True, self._is_time())

    def _may_update(self) -> bool:
        return not self._stopped and not self._over() and self._source.ready()

    def _update(self) -> None:
        with self._outlets.timing.stage("draw"):
            data = self._source.sample()
        with self._outlets.timing.stage("update"):
            self._updater.update(data)
        self._untold = True

    def _tell(self) -> None:
        """Call `after` for updates or an arrival, unless it was called just now."""
        if self._is_time():
            self._after(self._untold, True)
            self._untold = False

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now < self._tell_at:
            return False
        self._tell_at = now + TELL_EVERY
        return True

    # The thread.

    def start(self, guarded: Callable[[Callable[[], None]], None]) -> None:
        """Make updates on a thread from now on, each by `guarded`, which handles their errors."""
        self._thread = threading.Thread(target=self._run, args=(guarded,), name="updates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin no other update, and end all waits. From any thread."""
        self._stopped = True

    def join(self) -> None:
        """Tell the thread, if there is one, to stop, and wait for its end."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self, guarded: Callable[[Callable[[], None]], None]) -> None:
        while not self._stopped:
            try:
                guarded(self._work)
            except Exception:  # it was counted; several in a row end the learner
                logger.exception("an update failed")

    def _work(self) -> None:
        """Make an update if one may be made; else wait for an arrival, LOOK_EVERY s at most."""
        with self._turn:
            self._turn.wait_for(lambda: self._stopped or (self._may_update() and not self._arriving), LOOK_EVERY)
            if self._may_update() and not self._arriving:
                self._update()
                self._turn.notify_all()
            if self._untold:
                self._tell()


def _steps(payload: Any) -> int:
    """Return the number of steps in a payload; 0 for a damaged one."""
    terminated = payload.get("trajectory", {}).get("terminated") if isinstance(payload, dict) else None
    return terminated.size if isinstance(terminated, np.ndarray) else 0
