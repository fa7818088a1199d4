"""The scripts that change the league, a file each in league/lua: Redis runs each as one step, so any number of league
workers may run, and one that dies in the middle of its work leaves nothing half done."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError

from league.redis.texts import text

LUA = Path(__file__).parent / "lua"


@cache
def source(name: str, library: str) -> str:
    """The text of one script, with the library that all of its kind share before it."""
    return (LUA / f"{library}.lua").read_text() + (LUA / f"{name}.lua").read_text()


class Scripts:
    """The scripts of one league, bound to its keys: `scripts("report", match, outcomes, by)`."""

    def __init__(self, redis: Any, prefix: str, library: str = "lib") -> None:
        self._redis, self._prefix, self._library = redis, prefix, library
        self._scripts: dict[str, Any] = {}

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Run one; what it answers, as Redis gives it."""
        return self._script(name)(keys=[self._prefix], args=arguments)

    def together(self, *calls: tuple[Any, ...], before: tuple[Any, ...] | None = None) -> list[Any]:
        """Run several, (name, *arguments) each, in one round trip, and `before` them a plain command.

        Each is a step of its own. redis-py's own way asks first whether the server knows the scripts, a round trip
        more; here that is found out by trying.
        """
        with self._redis.pipeline(transaction=False) as pipeline:
            if before is not None:
                pipeline.execute_command(*before)
            for name, *arguments in calls:
                pipeline.evalsha(self._script(name).sha, 1, self._prefix, *arguments)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        failed = [answer for answer in answers if isinstance(answer, Exception)]
        if failed and not isinstance(failed[0], NoScriptError):
            raise failed[0]
        answers = answers[-len(calls) :]
        for place, (name, *arguments) in enumerate(calls):
            if isinstance(answers[place], NoScriptError):  # a server that was restarted: this loads it
                answers[place] = self(name, *arguments)
        return answers

    def _script(self, name: str) -> Any:
        if name not in self._scripts:
            self._scripts[name] = self._redis.register_script(source(name, self._library))
        return self._scripts[name]


def texts(answer: list[Any]) -> list[str]:
    """A script's answer, each element as text."""
    return [text(element) for element in answer]
