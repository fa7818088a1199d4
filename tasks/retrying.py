"""Retries of calls after an exception: for which exceptions, how often, and after how long a wait."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from warren.errors import ConfigurationError

LONGEST = 900.0  # s that a call may wait in a worker: RabbitMQ takes a message back that is held for 30 minutes


class RetryOn:
    """Exceptions after which a call runs again: `RetryOn(ConnectionError, TimeoutError, times=5, backoff=0.2)`.

    `errors`: their classes, or any Exception if `when` alone is given. `when`: called with such an exception and the
    number of earlier retries of the call; returns whether to try again. `times`: how often a call is tried again. It
    waits up to `backoff` s before the first try, then up to twice as long each time, at most `longest` s. With `jitter`
    it waits a random part of that, at least half, so that calls that failed together do not come back together. Raises
    ConfigurationError for values that make no sense.
    """

    def __init__(
        self,
        *errors: type[BaseException],
        when: Callable[[BaseException, int], bool] | None = None,
        times: int = 3,
        backoff: float = 0.5,
        longest: float = 60.0,
        jitter: bool = True,
    ) -> None:
        self.errors = errors or (Exception,)
        self.when, self.times, self.backoff, self.longest, self.jitter = when, times, backoff, longest, jitter
        problems = [
            f"{error!r} is not a class of exceptions"
            for error in errors
            if not (isinstance(error, type) and issubclass(error, BaseException))
        ]
        if not errors and when is None:
            problems.append("name classes of exceptions, or give when=")
        if not isinstance(times, int) or isinstance(times, bool) or times < 1:
            problems.append(f"times={times!r}: a call is tried again 1 time at least; leave retry_on out for none")
        if not 0 < backoff <= longest <= LONGEST:
            problems.append(f"backoff={backoff}, longest={longest}: waits are over 0 and at most {LONGEST:.0f} s")
        if problems:
            raise ConfigurationError([f"retry_on: {problem}" for problem in problems])

    @classmethod
    def of(cls, given: Any) -> RetryOn | None:
        """Make a RetryOn from a value of `retry_on=`: a RetryOn, or one or several classes; None for None."""
        if given is None or isinstance(given, cls):
            return given
        return cls(*given) if isinstance(given, tuple | list) else cls(given)

    def wait(self, error: BaseException, tried: int) -> float | None:
        """Return the s until a call that raised `error` after `tried` tries runs again; None where it does not."""
        if tried >= self.times or not isinstance(error, self.errors):
            return None
        if self.when is not None and not self.when(error, tried):
            return None
        most = min(self.longest, self.backoff * 2.0 ** min(tried, 64))
        return most * random.uniform(0.5, 1.0) if self.jitter else most
