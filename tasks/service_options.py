"""The settings of a service: as `service` takes them, and as its callers and workers know them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tasks.retrying import RetryOn
from tasks.topology import ONE_WAY_LENGTH
from warren.errors import ConfigurationError

MOST_BATCH = 32_767  # calls; AMQP's basic.qos can count twice as many
MOST_PRIORITIES = 10  # levels; RabbitMQ has a queue inside the queue for each
RETRIES = 2  # times that a call is sent again after a worker or the broker died with it
CONCURRENCY = 32  # calls of an `async def` service that run at once in one process, unless it says otherwise


@dataclass(frozen=True)
class Spec:
    """The settings of a service, as its callers and workers know them.

    `minimum`: calls that a batch waits for, for at most `wait` s (None: for as long as it takes). `retries`: how often
    a call is sent again when the worker, or the broker, died with it. `isolate`: when a batch of several calls fails
    as a whole, each is run again alone, so that only calls at fault fail. `bound`: calls without an answer
    that may wait in the broker; callers are slowed down to the pace of the workers when there are more.
    `concurrency`: calls of it (batches, where it has those) that run at once in a worker's event loop; 0 for a plain
    method, which runs in the thread of the services. `priorities`: levels of priority that its calls may have, 0 for
    none. `delays`: calls without an answer may be sent to be run later.
    """

    name: str
    response: bool = True
    batch: int = 1
    minimum: int = 1
    wait: float | None = None
    retries: int = RETRIES
    isolate: bool = True
    bound: int = ONE_WAY_LENGTH
    concurrency: int = 0
    priorities: int = 0
    delays: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a dict, for the run's directory of services."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spec:
        """Make a Spec of a dict. Fields of a newer version are ignored; those that an older one lacks have defaults."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True)
class ServiceOptions:
    """The arguments of `service`, which explains them."""

    response: bool
    batch: int
    wait: float | None
    gather: str | int
    retries: int
    isolate: bool | None
    bound: int | None
    concurrency: int | None
    retry_on: RetryOn | None
    time_limit: float | None
    hard_time_limit: float | None
    priorities: int
    delays: bool

    @property
    def minimum(self) -> int:
        """Return the number of calls that a batch waits for."""
        return self.gather if isinstance(self.gather, int) else self.batch if self.gather == "exactly" else 1

    def mark(self, function: Any) -> Any:
        """Make `function` a service with these options. Raises ConfigurationError where they do not suit it."""
        is_async = inspect.iscoroutinefunction(function)
        if problem := self._problem_with(function, is_async):
            raise ConfigurationError([f"@service: {problem}"])
        limit = self.time_limit
        function.__retry_on__ = self.retry_on
        function.__time_limits__ = None if limit is None else (limit, self.hard_time_limit)
        function.__service__ = Spec(
            function.__name__, self.response, self.batch, self.minimum, self.wait, self.retries,
            isolate=self.response if self.isolate is None else self.isolate,
            bound=ONE_WAY_LENGTH if self.bound is None else self.bound,
            concurrency=(self.concurrency or min(CONCURRENCY, MOST_BATCH // self.batch)) if is_async else 0,
            priorities=self.priorities, delays=self.delays,
        )  # fmt: skip
        return function

    def _problem_with(self, function: Any, is_async: bool) -> str | None:
        if is_generator(function):
            return f"{function.__name__} is a generator: a call has one result; return a list, or send events"
        if is_async and self.hard_time_limit is not None:
            return f"hard_time_limit={self.hard_time_limit}: an `async def` ends at its time_limit; leave this out"
        if self.concurrency is not None and not is_async:
            return (
                f"concurrency={self.concurrency}: {function.__name__} is not `async def`, so its calls run one after "
                "another; make it one, or start more workers"
            )
        return None

    def problems(self) -> list[str]:
        """Return what is wrong with the options, whatever function they are for."""
        problems = [*self._problems_with_batches(), *self._problems_with_limits(), *self._problems_with_queue()]
        if self.concurrency is not None and not 1 <= self.concurrency * self.batch <= MOST_BATCH:
            most = f"1 to {MOST_BATCH} calls at a time" + (f", and each batch of it {self.batch}" * (self.batch > 1))
            problems.append(f"concurrency={self.concurrency}: a worker runs {most}")
        return problems

    def _problems_with_batches(self) -> list[str]:
        problems, batch, gather = [], self.batch, self.gather
        if not 1 <= batch <= MOST_BATCH:
            problems.append(
                f"batch={batch}: a batch holds 1 to {MOST_BATCH} calls; a worker holds two, and AMQP counts to 65535"
            )
        if isinstance(gather, str) and gather not in ("greedy", "exactly"):
            problems.append(f"gather={gather!r}: use 'greedy', 'exactly', or the number of calls to wait for")
        if not 1 <= self.minimum <= max(batch, 1):
            problems.append(f"gather={gather}: a batch of {batch} waits for 1 to {batch} calls")
        if self.wait is not None and (self.wait <= 0 or self.minimum == 1):
            problems.append(
                f"wait={self.wait}: give a time in s over 0, and what to wait for (gather='exactly' or a number)"
            )
        return problems

    def _problems_with_queue(self) -> list[str]:
        problems, levels, bound = [], self.priorities, self.bound
        if levels != 0 and not 2 <= levels <= MOST_PRIORITIES:
            problems.append(f"priorities={levels}: use 2 to {MOST_PRIORITIES} levels, each of which costs the broker")
        if self.delays and self.response:
            problems.append(
                "delays=True: only calls without a response can be sent to be run later; add response=False"
            )
        if self.retries < 0:
            problems.append(
                f"retries={self.retries}: use 0 for a method that must not run again after its worker died in it"
            )
        if bound is not None and (bound < 1 or self.response):
            problems.append(
                f"bound={bound}: it limits the calls that wait without an answer; give it, from 1, with those"
            )
        return problems

    def _problems_with_limits(self) -> list[str]:
        limit, hard = self.time_limit, self.hard_time_limit
        if hard is not None and limit is None:
            return [f"hard_time_limit={hard}: give a shorter time_limit too, after which the call alone fails"]
        if limit is not None and not limit > 0:
            return [f"time_limit={limit}: give a time in s over 0"]
        if limit is not None and hard is not None and not hard > limit:
            return [f"hard_time_limit={hard}: it must be longer than time_limit={limit}"]
        return []


def is_generator(function: Any) -> bool:
    """Return whether calls of `function` return generators, whose bodies would not run."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
