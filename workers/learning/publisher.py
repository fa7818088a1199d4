"""Publication of weights: encoded once, put into the pool, fired to every actor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from celery.utils.log import get_logger
from torch import Tensor

from agents.checkpoints import encode_weights
from league.matchmaking.view import ModelRef
from league.models.model import checksum_of
from warren.errors import BrokerError
from workers.runtime.session import Session
from workers.runtime.timing import Timing

logger = get_logger(__name__)

Tensors = Mapping[str, Tensor]


class Publisher:
    """Publishes the weights of `player`: at once by `publish`; or by `offer`, on a thread, the newest at intervals.

    Once `start` was called, `offer` costs an update only the copy of its weights. Weights that newer ones replace
    before their turn are never encoded. `failing`: the error of the last try, "" if it succeeded.
    """

    def __init__(self, session: Session, player: str, event: str, timing: Timing) -> None:
        self._session, self._player, self._event, self._timing = session, player, event, timing
        self.version = -1  # the version that was published last
        self.failing = ""
        self._published: tuple[int, int, bytes] = (-1, 0, b"")  # version, step, safetensors bytes
        self._changed = threading.Condition()
        self._offered: tuple[Tensors, dict[str, Any]] | None = None
        self._busy = self._hurry = self._stopping = False
        self._every = 0.0
        self._before: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._firing: ThreadPoolExecutor | None = None
        self._fired: Future[None] | None = None

    # At once.

    def stamped(self, tensors: Tensors, stamp: Mapping[str, Any]) -> tuple[int, int, bytes]:
        """Return (version, step, safetensors bytes), which `restore` publishes again if they get lost."""
        with self._timing.stage("publisher: encode"):
            self._published = (stamp["version"], stamp["step"], encode_weights(tensors, stamp))
        return self._published

    def publish(self, tensors: Tensors, stamp: Mapping[str, Any]) -> int:
        """Put the weights into the pool and fire them to every actor; an actor that misses the event reads the pool.

        Returns their version, which is above the stamp's if the pool has other weights of that version.
        Raises redis.RedisError and PoolError.
        """
        weights, pool = self.stamped(tensors, stamp), self._session.pool
        with self._timing.stage("publisher: pool"):
            if not pool.put(self._player, *weights) and not self._is_in_pool(weights):
                newest = pool.version(self._player) or 0
                logger.warning(
                    "the pool already has %s@%d, made by another learner; publishing as version %d",
                    self._player, newest, newest + 1,
                )  # fmt: skip
                stamp = {**stamp, "version": max(weights[0], newest) + 1}
                weights = self.stamped(tensors, stamp)
                pool.put(self._player, *weights)
        self.version = weights[0]
        payload = {**stamp, "data": weights[2]}
        if self._firing is None:
            self._fire(payload)
        else:  # while the next weights go into the pool: with remote servers both take long
            self._wait_for_fired()
            self._fired = self._firing.submit(self._fire, payload, True)
        return weights[0]

    def restore(self) -> None:
        """Publish the newest weights once more if the pool does not have them, because it lost or refused them.

        It sends the bytes of the last `publish`, from any thread. Raises redis.RedisError.
        """
        version, step, data = self._published
        if version < 0:
            return
        known = self._session.pool.version(self._player)
        if known is None or known < version:
            has = "none" if known is None else f"version {known}"
            logger.warning("the pool has %s of %s; publishing version %d again", has, self._player, version)
            self._session.pool.put(self._player, version, step, data)
            self._fire({"player": self._player, "version": version, "step": step, "data": data})

    # On a thread.

    @property
    def running(self) -> bool:
        """True once `offer` may be called."""
        return self._thread is not None

    def start(self, every: float, before: Callable[[], None] = lambda: None) -> None:
        """Publish on a thread from now on, at most once in `every` s, each time after calling `before`."""
        self._every, self._before = every, before
        self._firing = ThreadPoolExecutor(1, thread_name_prefix="fan-out")
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def offer(self, tensors: Tensors, stamp: Mapping[str, Any]) -> None:
        """Publish these soon, unless newer ones come first; the caller must not change the tensors any more."""
        with self._changed:
            self._offered = (tensors, dict(stamp))
            self._changed.notify_all()

    def flush(self) -> None:
        """Publish the offered weights now; return once that was tried."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._offered is None and not self._busy)
            self._hurry = False
        self._wait_for_fired()

    def stop(self) -> None:
        """Publish the last offered weights, and end the thread."""
        if self._thread is not None:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            self._thread.join()
            self._thread = None
            assert self._firing is not None
            self._firing.shutdown()
            self._firing = None

    def _run(self) -> None:
        due = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._offered is not None or self._stopping)
                while (left := due - time.monotonic()) > 0 and not (self._hurry or self._stopping):
                    self._changed.wait(left)  # newer weights may take the place of these
                offered, self._offered = self._offered, None
                if offered is None:
                    return
                self._busy = True
            due = time.monotonic() + self._every
            try:
                self._before()
                self.publish(*offered)
                self.failing = ""
            except Exception as error:  # tried again with the next weights, and by `restore`
                self.failing = f"could not publish the weights: {type(error).__name__}: {error}"
                logger.error("%s; trying again later", self.failing)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _is_in_pool(self, weights: tuple[int, int, bytes]) -> bool:
        """Return whether the pool has these weights: published before a restart, or by a try whose answer got lost."""
        info = self._session.pool.info(ModelRef(self._player, weights[0]))
        return info is not None and info.checksum == checksum_of(weights[2])

    def _wait_for_fired(self) -> None:
        fired, self._fired = self._fired, None  # else its error would be raised for ever, and nothing fired again
        if fired is not None:
            fired.result()

    def _fire(self, payload: dict[str, Any], another_follows: bool = False) -> None:
        with self._timing.stage("fan-out: send"):
            try:
                self._session.events.fire(self._event, payload, another_follows)
            except BrokerError as error:  # actors read the pool as well
                logger.warning("%s", error)
