"""The scripts that change the league, a file each in league/lua: Redis runs each as one step, so any number of league
workers may run, and one that dies in the middle of its work leaves nothing half done."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from league.texts import text

LUA = Path(__file__).parent / "lua"
LIBRARY = "lib"


@cache
def source(name: str) -> str:
    """The text of one script, with the library that all share before it."""
    return (LUA / f"{LIBRARY}.lua").read_text() + (LUA / f"{name}.lua").read_text()


class Scripts:
    """The scripts of one league, bound to its keys: `scripts("report", match, outcomes, by)`."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._prefix = redis, prefix
        self._scripts: dict[str, Any] = {}

    def __call__(self, name: str, *arguments: Any, pipeline: Any = None) -> Any:
        """Run one (or queue it in `pipeline`); what it answers, as Redis gives it."""
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._redis.register_script(source(name))
        return script(keys=[self._prefix], args=arguments, client=pipeline)


def texts(answer: list[Any]) -> list[str]:
    """A script's answer, each element as text."""
    return [text(element) for element in answer]
