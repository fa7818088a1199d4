"""The process that plays for `python -m envs.check`: the environment may hang, print, or end it."""

from __future__ import annotations

import inspect
import json
import os
import sys

from envs.checking import budget, one_agent, together, two_player
from envs.checking.report import PROBLEMS, Report
from envs.many_agents.team import Team
from envs.one_agent import user_envs
from envs.registry import make, of_two_players
from envs.settings import EnvSettings
from envs.sources import ONE_AGENT, OfALeague
from envs.two_player.vector_env import TwoPlayerVectorEnv
from envs.vector.own import is_vector
from warren.errors import WarrenError


def main() -> None:
    """Play what the first argument, as JSON, asks for; exit with PROBLEMS if there are any."""
    question = json.loads(sys.argv[1])
    settings, steps, report = EnvSettings(**question["settings"]), question["steps"], Report()
    print(settings.id, flush=True)
    with report.checking("settings"):
        settings.check()
    if not report.problems:
        kind = _kind(settings)
        if kind == "game":
            two_player.check(report, settings.id, settings.kwargs, steps)
        elif kind == "agents":
            together.check(report, settings, steps)
        else:
            one_agent.check(report, settings, steps)
    print(report.summary(), flush=True)
    sys.stderr.flush()
    os._exit(PROBLEMS if report.problems else 0)  # without waiting for threads that the environment has started


def _kind(settings: EnvSettings) -> str:
    """Return "game" for a game of two players, told by its source, class, parameters or product; "agents" if several
    agents learn together; else "one agent"."""
    source, colon, _ = settings.id.partition(":")
    if of_two_players(settings):
        return "game"
    if not colon or source in ONE_AGENT.keys() - {"mpe", "pettingzoo"}:
        return "one agent"
    try:
        if source not in ONE_AGENT:
            factory = user_envs.find(settings.id)
            if isinstance(factory, type) and issubclass(factory, TwoPlayerVectorEnv):
                return "game"
            if not is_vector(factory) and {"num_envs", "seed"} <= set(inspect.signature(factory).parameters):
                return "game"
        made = make(settings)
        made.close()
    except OfALeague:
        return "game"
    except (WarrenError, ValueError):
        return "one agent"  # the check will meet the error and report it
    return "agents" if isinstance(made, Team) else "one agent"


if __name__ == "__main__":
    budget.own_process = True
    main()
