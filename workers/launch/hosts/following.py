"""The place of a host that joins a run, led by another, and leaves with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from tasks.events import Subscription
from warren.errors import BrokerError, WarrenError
from workers.launch.hosts.membership import ENDED, LEASE, Presence
from workers.launch.hosts.places import POLL_EVERY, Place, Share
from workers.launch.watching.figures import exit_status


class Following(Place):
    """The place of a host that joins a run, led by another, and leaves with it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._ended: list[int] = []
        self._silent_since: float | None = None
        self._failed = False
        self._subscription: Subscription | None = None

    def begin(self, asked: Callable[[], bool] = lambda: False) -> None:
        """Wait for the leader, and join. Raises KeyboardInterrupt if asked to stop."""
        where = self.spec.hosts[0] if self.spec.hosts else "its first machine"
        while (leader := self._leader()) is None:
            self.wait_for(f"waiting for run {self.spec.run}, which {where} has to start (Ctrl-C: stop waiting)")
            if asked():
                raise KeyboardInterrupt
            time.sleep(POLL_EVERY)
        self.wait_for("")
        self.membership.take(False, self.presence())
        self.membership.hold()
        self.say(f"joined run {self.spec.run}, led by {leader.where}")
        handlers = {ENDED: lambda status: self._ended.append(exit_status(status))}
        self._subscription = Subscription(self.app, self.topology, handlers, f"launcher-{self.host}").start()

    def _leader(self) -> Presence | None:
        """Return the state of the leader of an open run that has not ended, else None."""
        try:
            leader = self.membership.leader()
        except redis.RedisError as error:
            raise BrokerError(f"Redis is away: {error}") from error
        return leader if leader is not None and leader.open and leader.status is None else None

    def beat(self, share: Share) -> int | None:
        """Renew the lease, once a second; return the exit status if the run is over, else None.

        Raises WarrenError if the leader is gone.
        """
        if self._ended:
            return self._ended[0]
        leader = self.membership.leader()
        if leader is None:
            self._silent_since = self._silent_since or time.monotonic()
            if time.monotonic() - self._silent_since > LEASE:
                raise WarrenError(f"the leader of run {self.spec.run} is gone without saying why; start the run again")
        else:
            self._silent_since, self.update = None, leader.update
            if leader.status is not None:
                return leader.status
        ready = share.ready()
        self.membership.renew(False, self.presence(share, ready=ready))
        if ready and leader is not None and leader.ready and not share.playing:
            share.play()
        return None

    def gave_up(self, why: str) -> None:
        """Publish the reason, for the leader to read."""
        self._failed = True
        try:
            self.membership.renew(False, self.presence(failed=why))
        except (WarrenError, redis.RedisError) as error:
            self.say(f"warning: the leader was not told: {error}")

    def leave(self, status: int) -> None:
        """Leave the run, when all processes are stopped."""
        if self._subscription is not None:
            self._subscription.stop()
        if not self._failed:  # else the leader has to read why
            try:
                self.membership.leave(False, self.host)
            except redis.RedisError as error:
                self.say(f"warning: the leader was not told of the end: {error}")
        self.say(f"run {self.spec.run} {'is done' if status == 0 else f'has ended with status {status}'}")
