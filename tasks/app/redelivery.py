"""Limits on redelivery: a message that kills each worker that runs it goes to the dead letters in the end.

A broker hands on what a dead worker held, marked as redelivered, and neither a classic queue nor Redis counts how
often. Here each run of a redelivered message is counted in Redis when it begins, under the message's id, and forgotten
when it ends. So the count that remains is the number of workers that died while they ran it. A message that is
delivered once,
as nearly all are, costs nothing; one that was merely held by a worker that died for another reason is not counted.

With a limit of one delivery, every run is marked as begun and then as done, whether its message is redelivered or not.
A message that was merely held has no mark and runs. One that was begun and not done is given up. One that was done is
not run again: its acknowledgement was lost, or its sender published it twice. A call whose caller waits is not marked
as done: its answer may be lost with its worker, so it is given up too. Its mark goes when the call has expired.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import redis
from celery.exceptions import Retry
from celery.utils.log import get_logger

from tasks.app.outcome import Again, Dropped, NotYet, Requeue, failed, has_run, not_yet
from tasks.app.steps import Steps, drive
from tasks.topology import UNUSED_EXPIRES, Topology
from warren import redis_client
from warren.errors import BrokerError, DeliveriesExceeded

logger = get_logger(__name__)

DELIVERIES = 3  # of a message, unless its task or service says otherwise: so many workers may die of it
REMEMBERED = 24 * 3600  # s that a count is kept after the last worker died
DONE_FOR = int(UNUSED_EXPIRES)  # s that a run is remembered; by then a queue without a worker is gone with its messages
SLACK = 60.0  # s for which a mark is kept beyond the end of its call, as clocks differ
DONE = b"done"


class Delivered(Protocol):
    """The part of a message that counting its deliveries needs."""

    @property
    def id(self) -> str:
        """Return its id, which stays the same however often it is delivered."""
        ...

    @property
    def redelivered(self) -> bool:
        """Return whether the broker delivered it before."""
        ...

    @property
    def awaited(self) -> float | None:
        """Return the s (inf: no limit) for which its caller waits on its connection; None where none does."""
        ...


class Message(NamedTuple):
    """A message by its values; see Delivered."""

    id: str
    redelivered: bool
    awaited: float | None = None


class Deliveries:
    """The counts of one run. Without Redis nothing is counted, and a message is delivered once more."""

    def __init__(self, url: str, topology: Topology, client: Any = None) -> None:
        self._redis = client or redis_client.connect(url, socket_connect_timeout=2.0, socket_timeout=2.0)
        self._prefix = f"{topology.key_prefix}begun:"
        self._begun = b"begun by " + secrets.token_hex(8).encode()
        self._unsure: set[str] = set()  # not run, and perhaps marked: Redis went away before it had answered

    def numbers(self, ids: Sequence[str]) -> list[int]:
        """Return the number of this delivery of each redelivered message: 2 plus the runs begun before.

        Without Redis that number is not known, and 2 is returned.
        """
        try:
            begun: Any = self._redis.mget([self._prefix + one for one in ids])
        except redis.RedisError as error:
            logger.warning("cannot read how often messages were delivered: %s", error)
            return [2] * len(ids)
        return [2 + int(count or 0) for count in begun]

    def begin(self, ids: Sequence[str]) -> None:
        """Count that the messages are about to be run."""
        self._try(lambda pipe, key: (pipe.incr(key), pipe.expire(key, REMEMBERED)), ids)

    def end(self, ids: Sequence[str]) -> None:
        """Forget the runs of the messages: they ended, with whatever outcome, and the worker is alive."""
        self._try(lambda pipe, key: pipe.delete(key), ids)

    def forget(self, ids: Sequence[str]) -> None:
        """Forget all runs of messages that are sent again by hand, finished ones too. Raises redis.RedisError."""
        if ids:
            self._redis.unlink(*(self._prefix + one for one in ids))

    def begin_once(self, ids: Sequence[str], seconds: Sequence[float]) -> list[bytes | None]:
        """Mark messages that must not run twice as begun; return the mark that each had, None where it may run.

        `seconds`: for which each mark is kept. Raises BrokerError while Redis is away.
        """
        try:
            with self._redis.pipeline() as pipe:
                for one, kept in zip(ids, seconds, strict=True):
                    pipe.get(self._prefix + one)
                    pipe.set(self._prefix + one, self._begun, nx=True, ex=math.ceil(min(kept, REMEMBERED)))
                found: list[Any] = pipe.execute()[::2]
        except redis.RedisError as error:
            self._unsure.update(ids)
            raise BrokerError(f"cannot mark the runs of what must not run twice: {error}") from error
        if self._unsure:
            mine = [one in self._unsure and mark == self._begun for one, mark in zip(ids, found, strict=True)]
            found = [None if own else mark for own, mark in zip(mine, found, strict=True)]
            self._unsure.difference_update(ids)
        return found

    def end_once(self, ids: Sequence[str]) -> None:
        """Mark the messages as DONE; the mark outlives the acknowledgement, which may be lost."""
        self._try(lambda pipe, key: pipe.set(key, DONE, ex=DONE_FOR), ids)

    def _forget_soon(self, ids: Sequence[str]) -> None:
        """Keep the marks of messages, unchanged, for no longer than those of messages that have run."""
        self._try(lambda pipe, key: pipe.expire(key, DONE_FOR), ids)

    def _try(self, add: Callable[[Any, str], Any], ids: Sequence[str]) -> None:
        if not ids:
            return
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                for one in ids:
                    add(pipe, self._prefix + one)
                pipe.execute()
        except redis.RedisError as error:
            logger.warning("cannot count how often messages were delivered: %s", error)

    def run(
        self,
        name: str,
        limit: int,
        call_all: Callable[[list[Any]], list[Any]],
        calls: Sequence[Any],
        messages: Sequence[Delivered],
    ) -> list[Any]:
        """Run calls of `name` by `call_all`, in `steps` where they are counted; return one outcome per call."""
        steps = self.steps(name, limit, calls, messages)
        return call_all(list(calls)) if steps is None else drive(steps, call_all)

    def steps(self, name: str, limit: int, calls: Sequence[Any], messages: Sequence[Delivered]) -> Steps | None:
        """Return the steps in which calls of `name` are run; None where nothing is counted, as for nearly all batches.

        `messages`: of the calls. One that was delivered more often than `limit` is not run: its outcome is a failure
        with DeliveriesExceeded. One on its last delivery is run alone, so that only the message at fault is given up of
        a batch that killed its workers. With a `limit` of 1 first deliveries are marked too, and calls that cannot be
        marked have the outcome NotYet.
        """
        if limit == 1:
            return self._steps_once(name, calls, messages)
        for message in messages:
            if message.redelivered:
                break
        else:
            return None
        return self._steps(name, limit, calls, [one.id if one.redelivered else None for one in messages])

    def _steps(self, name: str, limit: int, calls: Sequence[Any], ids: Sequence[str | None]) -> Steps:
        known = [one for one in ids if one]
        numbers = dict(zip(known, self.numbers(known), strict=True)) if known else {}
        outcomes: list[Any] = [None] * len(calls)
        together = []
        for index, one in enumerate(ids):
            number = numbers[one] if one else 1
            if one and number > limit:
                outcomes[index] = failed(exceeded(name, one, limit))
            elif one and number == limit and len(calls) > 1:
                (outcomes[index],) = yield from self._counted([one], [calls[index]])
            else:
                together.append(index)
        if together:
            suspects = [one for index in together if (one := ids[index])]
            found = yield from self._counted(suspects, [calls[index] for index in together])
            for index, outcome in zip(together, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _counted(self, ids: list[str], calls: list[Any]) -> Steps:
        self.begin(ids)
        try:
            outcomes = yield calls
        except (Exception, GeneratorExit):  # it is given up, and this worker lives
            self.end(ids)
            raise
        # Not after SystemExit: it ends this worker, so the count stays, as after a kill.
        self.end(ids)
        return outcomes

    def _steps_once(self, name: str, calls: Sequence[Any], messages: Sequence[Delivered]) -> Steps:
        """Run the calls whose messages have no mark yet."""
        ids, awaited = [one.id for one in messages], [one.awaited for one in messages]
        outcomes: list[Any] = [None] * len(calls)
        try:
            marks = self.begin_once(ids, [REMEMBERED if one is None else one + SLACK for one in awaited])
        except BrokerError as error:
            return [not_yet(error)] * len(calls)
        for index, mark in enumerate(marks):
            if mark == DONE or ids[index] in ids[:index]:
                outcomes[index] = has_run()
            elif mark is not None:
                outcomes[index] = failed(exceeded(name, ids[index], 1))
        free = [index for index, outcome in enumerate(outcomes) if outcome is None]
        if free:
            found = yield [calls[index] for index in free]
            for index, outcome in zip(free, found, strict=True):
                outcomes[index] = outcome
        self.end([ids[index] for index in free if _comes_again(outcomes[index])])
        ended = [index for index in free if not _comes_again(outcomes[index])]
        self.end_once([ids[index] for index in ended if awaited[index] is None])
        self._forget_soon([ids[index] for index in ended if (awaited[index] or 0.0) > DONE_FOR])
        return outcomes


def _comes_again(outcome: Any) -> bool:
    """Return True where a message of this id runs again, since the call itself asked for it."""
    return isinstance(outcome, Requeue | NotYet | Again) or (
        isinstance(outcome, Dropped) and isinstance(outcome.error, Retry)
    )


def exceeded(name: str, message_id: str, limit: int) -> DeliveriesExceeded:
    """Return the error for a message that has been delivered `limit` times."""
    times = "once" if limit == 1 else f"{limit} times"
    return DeliveriesExceeded(
        name,
        f"message {message_id} for {name} was delivered {times}, and no worker came back from it; "
        "it goes to the dead letters, or back to its caller: see the workers' logs before it is sent again",
    )


def was_redelivered(info: Any, headers: Any = None) -> bool:
    """Return whether the broker delivered this before: RabbitMQ's flag, or the header of kombu's Redis transport."""
    return bool((info or {}).get("redelivered") or (headers or {}).get("redelivered"))
