"""The scripts that change the league, one file each in league/redis/lua.

Redis runs each script as one step, so any number of league workers may run, and one that dies in the middle of its work
leaves nothing half done.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from league.redis.texts import text
from league.rules.ratings import ELO_RANGE, ELO_SCALE
from league.rules.win_rates import CELL_BYTES
from league.state.ended_matches import KEPT
from warren.errors import LeagueAbsent

LUA = Path(__file__).parent / "lua"
ABSENT = "NOLEAGUE"  # the error that guard.lua returns
# Constants that the scripts share with Python, as local variables of each script.
CONSTANTS = {
    "CELL": CELL_BYTES,  # bytes of a payoff cell
    "KEPT_ENDED": KEPT,
    "ELO_SCALE": ELO_SCALE,
    "ELO_RANGE": ELO_RANGE,
}
UNGUARDED = ("create", "add", "dump", "returns_add", "cell_claim")  # scripts that may run before the league is ready


@cache
def source(name: str, library: str) -> str:
    """Return the text of one script, preceded by the library of its kind."""
    constants = "".join(f"local {constant} = {value:.17g}\n" for constant, value in CONSTANTS.items())
    parts = [library, *(["guard"] if library == "lib" and name not in UNGUARDED else []), name]
    return constants + "".join((LUA / f"{part}.lua").read_text(encoding="utf-8") for part in parts)


class Scripts:
    """The scripts of one league, bound to its keys: `scripts("report", match, outcomes, by)`."""

    def __init__(self, redis: Any, prefix: str, library: str = "lib") -> None:
        self._redis, self._prefix, self._library = redis, prefix, library
        self._scripts: dict[str, Any] = {}

    def __call__(self, name: str, *arguments: Any, client: Any = None) -> Any:
        """Run one script, by `client` if one is given, and return Redis's answer.

        Raises LeagueAbsent while there is no league to change.
        """
        try:
            return self._script(name)(keys=[self._prefix], args=arguments, client=client)
        except ResponseError as error:
            raise absent(error) from None

    def together(self, *calls: tuple[Any, ...], before: tuple[Any, ...] | None = None) -> list[Any]:
        """Run several scripts, (name, *arguments) each, in one round trip, after the plain command `before`, if given.

        Each script is a step of its own. redis-py first asks whether the server knows the scripts, which takes another
        round trip; here a script that the server does not know is loaded after the attempt.
        """
        with self._redis.pipeline(transaction=False) as pipeline:
            if before is not None:
                pipeline.execute_command(*before)
            for name, *arguments in calls:
                pipeline.evalsha(self._script(name).sha, 1, self._prefix, *arguments)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        failed = [answer for answer in answers if isinstance(answer, Exception)]
        if failed and not isinstance(failed[0], NoScriptError):
            raise absent(failed[0])
        answers = answers[-len(calls) :]
        for place, (name, *arguments) in enumerate(calls):
            if isinstance(answers[place], NoScriptError):  # the server was restarted: load the script and run it
                answers[place] = self(name, *arguments)
        return answers

    def _script(self, name: str) -> Any:
        if name not in self._scripts:
            self._scripts[name] = self._redis.register_script(source(name, self._library))
        return self._scripts[name]


def absent(error: Exception) -> Exception:
    """Return LeagueAbsent if that is what the server said, else the error itself."""
    if str(error).startswith(ABSENT):
        return LeagueAbsent(str(error).removeprefix(ABSENT).strip())
    return error


def texts(answer: Any) -> list[str]:
    """Return a script's answer, each element as text."""
    return [text(element) for element in (answer if isinstance(answer, list) else [answer])]
