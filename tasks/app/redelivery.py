"""How often a message may be delivered again: what kills each worker that runs it goes to the dead letters, not on.

A broker hands on what a dead worker held, marked as redelivered, and neither a classic queue nor Redis counts how
often. Here each run of a redelivered message is counted in Redis when it begins, under the message's id, and forgotten
when it ends: what is left is the number of workers that did not come back from it. A message that is delivered once,
as nearly all are, costs nothing; one that was merely held by a worker that died for another reason counts nothing.
Where one delivery is the limit, every run is counted, or what was merely held could not be told from what was begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from celery.utils.log import get_logger

from tasks.topology import Topology
from warren import redis_client
from warren.errors import BrokerError, DeliveriesExceeded

logger = get_logger(__name__)

DELIVERIES = 3  # of one message, unless its task or service says otherwise: as many workers may die of it
REMEMBERED = 24 * 3600  # s that a count is kept after the last worker died


class Deliveries:
    """The counts of one run. Without Redis nothing is counted, and a message is delivered once more."""

    def __init__(self, url: str, topology: Topology) -> None:
        self._redis = redis_client.connect(url, socket_connect_timeout=2.0, socket_timeout=2.0)
        self._prefix = f"{topology.key_prefix}begun:"

    def numbers(self, ids: Sequence[str], limit: int = DELIVERIES) -> list[int]:
        """Which delivery of each redelivered message this is, as far as it was begun before: 2 after none.

        With a `limit` of 1 the first run is counted too, so a message that was merely held is at 1. Without Redis
        nobody knows: the answer is 2, or BrokerError with a `limit` of 1.
        """
        uncounted = 0 if limit == 1 else 1
        try:
            begun: Any = self._redis.mget([self._prefix + one for one in ids])
        except redis.RedisError as error:
            if limit == 1:
                raise BrokerError(
                    f"cannot read whether messages have been run that must not run twice: {error}"
                ) from error
            logger.warning("cannot read how often messages were delivered: %s", error)
            return [2] * len(ids)
        return [1 + uncounted + int(count or 0) for count in begun]

    def begin(self, ids: Sequence[str], must: bool = False) -> None:
        """The messages are about to be run. `must`: raise BrokerError where that cannot be counted."""
        self._try(lambda pipe, key: (pipe.incr(key), pipe.expire(key, REMEMBERED)), ids, must)

    def end(self, ids: Sequence[str]) -> None:
        """They were run, with whatever outcome, and the worker is alive."""
        self._try(lambda pipe, key: pipe.delete(key), ids)

    def _try(self, add: Callable[[Any, str], Any], ids: Sequence[str], must: bool = False) -> None:
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                for one in ids:
                    add(pipe, self._prefix + one)
                pipe.execute()
        except redis.RedisError as error:
            if must:
                raise BrokerError(f"cannot count the runs of what must not run twice: {error}") from error
            logger.warning("cannot count how often messages were delivered: %s", error)

    def run(
        self,
        name: str,
        limit: int,
        call_all: Callable[[list[Any]], list[Any]],
        calls: Sequence[Any],
        ids: Sequence[str | None],
        first: Sequence[str | None] | None = None,
    ) -> list[Any]:
        """One outcome a call of `name`. `call_all` runs any number of calls; `ids`: of those that were redelivered.

        A message over `limit` is not run: its outcome is the DeliveriesExceeded. One on its last delivery is run
        alone, so that of a batch that killed its workers only the message at fault is given up. With a `limit` of 1
        those that are delivered `first` are counted too, and BrokerError is raised while nothing can be counted.
        """
        known = [one for one in ids if one]
        numbers = dict(zip(known, self.numbers(known, limit), strict=True)) if known else {}
        counted = [one or (first[index] if first and limit == 1 else None) for index, one in enumerate(ids)]
        outcomes: list[Any] = [None] * len(calls)
        together = []
        for index, one in enumerate(ids):
            number = numbers[one] if one else 1
            if one and number > limit:
                outcomes[index] = exceeded(name, one, limit)
            elif one and number == limit and len(calls) > 1:
                outcomes[index] = self._counted([one], lambda index=index: call_all([calls[index]]), limit)[0]  # type: ignore[misc]
            else:
                together.append(index)
        if together:
            suspects = [one for index in together if (one := counted[index])]
            found = self._counted(suspects, lambda: call_all([calls[index] for index in together]), limit)
            for index, outcome in zip(together, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _counted(self, ids: list[str], job: Callable[[], list[Any]], limit: int) -> list[Any]:
        if not ids:
            return job()
        self.begin(ids, must=limit == 1)
        try:
            outcomes = job()
        except Exception:
            self.end(ids)
            raise
        # Not after SystemExit: it ends this worker, so the count stays, as after a kill.
        self.end(ids)
        return outcomes


def exceeded(name: str, message_id: str, limit: int) -> DeliveriesExceeded:
    """The error for a message that has been delivered `limit` times."""
    times = "once" if limit == 1 else f"{limit} times"
    return DeliveriesExceeded(
        name,
        f"message {message_id} for {name} was delivered {times}, and no worker came back from it; "
        "it goes to the dead letters: see the workers' logs before it is sent again",
    )


def was_redelivered(info: Any, headers: Any = None) -> bool:
    """Whether the broker delivered this before: RabbitMQ's flag, or the header that kombu's Redis transport sets."""
    return bool((info or {}).get("redelivered") or (headers or {}).get("redelivered"))
