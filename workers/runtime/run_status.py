"""The end of a run, for processes that were not subscribed when the learner announced it.

The last status event reaches the processes that are subscribed at that moment. An actor that starts later, or whose
connection was just lost, reads the same from Redis. Figures are stored there, not the verdict: if the goal has been
raised since, the run is not over.
"""

from __future__ import annotations

import json
from typing import Any

from workers.config.schema import Config

CLOSED = "closed"  # the state of a run whose launcher has ended, however it ended; its name is not used again
OVER = ("solved", "finished", CLOSED)  # states after which nothing plays any more
REMEMBERED = 24 * 3600  # s


def verdict(config: Config, steps: int, mean_return: float | None) -> str | None:
    """Return "solved" when the goal is met, "finished" when all steps are done, None while there is more to do.

    `mean_return`: of the last `env.goal_episodes` training episodes, None before there have been so many.
    """
    goal = config.env.goal
    if goal is not None and mean_return is not None and mean_return >= goal:
        return "solved"
    return "finished" if steps >= config.total_steps else None


class Ending:
    """The end of a run, stored in Redis under keys that begin with `prefix`.

    The learner of a plain run stores its last figures; the launcher of any run stores that it is closed.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key = redis, f"{prefix}ending"
        # Not below the run's prefix: those keys are removed with the run, and this key records that.
        self._closed = f"closed-{prefix}"

    def record(self, steps: int, mean_return: float | None) -> None:
        """Store the last figures; called before the last status event is fired."""
        self._redis.set(self._key, json.dumps({"steps": steps, "mean_return": mean_return}))

    def close(self) -> None:
        """Store for REMEMBERED s that the launcher has removed the run, for processes that start or reconnect later."""
        self._redis.set(self._closed, "", ex=REMEMBERED)

    def clear(self) -> None:
        """Forget the end: the run goes on."""
        self._redis.delete(self._key, self._closed)

    def state(self) -> str | None:
        """Return CLOSED when the launcher has removed the run, None while it goes on."""
        return CLOSED if self._redis.exists(self._closed) else None

    def verdict(self, config: Config) -> str | None:
        """Return the verdict on a run that has ended; None if it goes on, or would go on by the goal of `config`."""
        data = self._redis.get(self._key)
        return self.state() or (None if data is None else verdict(config, **json.loads(data)))
