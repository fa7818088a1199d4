"""The decision about a process that died: whether to start it again, and whether the run ends with it."""

from __future__ import annotations

from dataclasses import dataclass

from warren.errors import NotFinite
from workers.config.roles import Restart
from workers.launch.processes.failure import Failure

CALM = 60.0  # s of life after which a process's earlier deaths no longer count
SOON = 20.0  # s of life; a process that fails twice in the same way before that would do so a third time
MOST_WAIT, MOST_WAIT_OPTIONAL = 8.0, 60.0  # s between two tries at most


@dataclass(frozen=True)
class Death:
    """A death of a process. `lived`: s since its start; `excused`: a server was away, which may be the cause."""

    name: str
    status: int | None
    lived: float
    failure: Failure | None = None
    excused: bool = False


@dataclass(frozen=True)
class History:
    """The past of a process. `deaths`: those since it was last calm; `failure`: at its last death.

    `restarts`: deaths that a critical process may have. `restart`: the meaning of its failures for the run.
    """

    deaths: int
    failure: Failure | None
    restarts: int
    restart: Restart = Restart.critical


@dataclass(frozen=True)
class Action:
    """The answer to a death. `wait`: s until the next try; None: no further try.

    `ends_run`: the run cannot go on without the process. `deaths`, `failure`: for the history. `text`: to be printed.
    """

    wait: float | None
    text: str
    deaths: int
    failure: Failure | None
    ends_run: bool = False


def decide(death: Death, history: History) -> Action:
    """Return what to do after a death."""
    name, failure = death.name, death.failure
    if death.excused:
        return Action(1.0, f"restarting {name} once the servers answer", history.deaths, None)
    deaths = 1 if death.lived > CALM else history.deaths + 1
    optional = history.restart is not Restart.critical
    if why := _reason_to_give_up(death, history, deaths):
        if optional:
            return Action(None, f"{why}; the run goes on without it", deaths, failure)
        return Action(None, why, deaths, failure, ends_run=True)
    wait = min(0.25 * 2 ** (deaths - 1), MOST_WAIT_OPTIONAL if optional else MOST_WAIT)
    count = f"{deaths}" if optional else f"{deaths} of {history.restarts}"
    return Action(wait, f"restarting {name} ({count}) in {wait:g} s", deaths, failure)


def _reason_to_give_up(death: Death, history: History, deaths: int) -> str:
    """Return why the process is not started again; "" if it is."""
    name, failure = death.name, death.failure
    if history.restart is Restart.never:
        return f"{name} is not started again"
    if death.status == NotFinite.exit_status:
        return f"{name} cannot go on: {failure}"
    before = history.failure
    again = failure is not None and before is not None and failure.is_like(before) and not failure.passing
    repeated = again and death.lived < SOON and deaths > 1
    if deaths > history.restarts and (repeated or history.restart is Restart.critical):
        cause = f": {failure}" if failure else ""
        return f"{name} died {deaths} times; giving up (restarts={history.restarts}){cause}"
    return f"{name} failed twice in the same way and will again; giving up: {failure}" if repeated else ""
