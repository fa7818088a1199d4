"""One-way calls that are run later: how long they may wait, and the broker's queues in which they wait."""

from __future__ import annotations

import math
import time

import redis
from celery.utils.log import get_logger

from tasks.admin.registry import Directory
from tasks.brokers import Connection
from tasks.service import Spec
from tasks.topology import DELAY_EXPIRES, Topology
from warren.errors import ConfigurationError

logger = get_logger(__name__)

MOST = 30 * 86_400.0  # s; RabbitMQ counts to 49 days


def checked_delay(delay: float, spec: Spec | None, longest: float) -> int:
    """Return `delay`, in s, as ms, up to a tenth longer. Raises ConfigurationError where the call cannot wait so long.

    There is a queue for each delay and service, so their number is bounded: delays have two digits.
    """
    if spec is None or longest == 0.0:
        raise ConfigurationError(f"delay={delay!r}: calls of a chord cannot be delayed; leave it out")
    if spec.response:
        raise ConfigurationError(f"delay={delay!r}: {spec.name} answers, so its caller waits itself; leave it out")
    if not spec.delays:
        raise ConfigurationError(
            f"delay={delay!r}: {spec.name} takes no delayed calls; mark it with @service(response=False, delays=True)"
        )
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0.0 < delay <= longest:
        raise ConfigurationError(f"delay={delay!r}: give a time in s over 0, at most {longest:.0f} on this broker")
    milliseconds = math.ceil(delay * 1000)
    step: int = 10 ** max(0, len(str(milliseconds)) - 2)
    return -(-milliseconds // step) * step


class DelayQueues:
    """Declares, on one connection, the queues that delayed calls wait in, again before these delete themselves."""

    def __init__(self, topology: Topology, directory: Directory) -> None:
        self._topology, self._directory = topology, directory
        self._noted: set[tuple[str, int]] = set()
        self._declared: dict[tuple[str, int], float] = {}

    def clear(self) -> None:
        """Declare all queues again from now on."""
        self._declared.clear()

    def declare(self, link: Connection, name: str, milliseconds: int) -> None:
        """Let the queue exist for longer than a call of this delay waits. Raises one of GONE."""
        now = time.monotonic()
        if now - self._declared.get((name, milliseconds), float("-inf")) > DELAY_EXPIRES / 3:
            link.declare(self._topology.delay_queue(name, milliseconds))
            self._declared[(name, milliseconds)] = now
            self._note(name, milliseconds)

    def _note(self, name: str, milliseconds: int) -> None:
        """Note the queue, so that the run's end removes it; it removes itself a little later."""
        if (name, milliseconds) not in self._noted:
            try:
                self._directory.note_delay(name, milliseconds)
                self._noted.add((name, milliseconds))
            except redis.RedisError as error:
                logger.debug("a queue of delayed calls was not noted: %s", error)
