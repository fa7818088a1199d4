"""Whether a run is over, and how a process learns it that was not there when the learner said so.

The last status event reaches who is subscribed at that moment. An actor that starts later, or whose connection was
just lost, reads the same from Redis. Kept are figures, not the verdict: with a goal that was raised since, the run
is not over.
"""

from __future__ import annotations

import json
from typing import Any

from workers.config.schema import Config


def verdict(config: Config, steps: int, mean_return: float | None) -> str | None:
    """ "solved" when the goal is met, "finished" when all steps are done, None while there is more to do.

    `mean_return`: of the last 100 training episodes, None before there have been 100.
    """
    goal = config.env.goal
    if goal is not None and mean_return is not None and mean_return >= goal:
        return "solved"
    return "finished" if steps >= config.total_steps else None


class Ending:
    """The figures with which a run ended, in Redis; the key begins with `prefix`."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._key = redis, f"{prefix}ending"

    def record(self, steps: int, mean_return: float | None) -> None:
        """The run ended so; to be written before the last status event is fired."""
        self._redis.set(self._key, json.dumps({"steps": steps, "mean_return": mean_return}))

    def clear(self) -> None:
        """The run goes on."""
        self._redis.delete(self._key)

    def verdict(self, config: Config) -> str | None:
        """The verdict on a run that has ended, None for one that has not, or has not in the eyes of `config`."""
        data = self._redis.get(self._key)
        return None if data is None else verdict(config, **json.loads(data))
