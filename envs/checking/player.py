"""The process that plays for `python -m envs.check`: the environment may hang, print, or end it."""

from __future__ import annotations

import inspect
import json
import os
import sys

from envs.checking import budget, one_agent, two_player
from envs.checking.report import PROBLEMS, Report
from envs.one_agent import user_envs
from envs.registry import make
from envs.settings import EnvSettings
from envs.sources import ONE_AGENT, OfALeague, is_two_player
from envs.two_player.vector_env import TwoPlayerVectorEnv
from envs.vector.own import is_vector
from warren.errors import WarrenError


def main() -> None:
    """Plays what the first argument asks for, as JSON; exits with PROBLEMS where there are some."""
    question = json.loads(sys.argv[1])
    settings, steps, report = EnvSettings(**question["settings"]), question["steps"], Report()
    print(settings.id, flush=True)
    with report.checking("settings"):
        settings.check()
    if not report.problems:
        if _is_game(settings):
            two_player.check(report, settings.id, settings.kwargs, steps)
        else:
            one_agent.check(report, settings, steps)
    print(report.summary(), flush=True)
    sys.stderr.flush()
    os._exit(PROBLEMS if report.problems else 0)  # whatever threads the environment has started


def _is_game(settings: EnvSettings) -> bool:
    """Return whether it is a game of two players: a user's own by its class, its parameters, or its product."""
    source, colon, _ = settings.id.partition(":")
    if is_two_player(settings.id) or not colon or source in ONE_AGENT:
        return is_two_player(settings.id)
    try:
        factory = user_envs.find(settings.id)
        if isinstance(factory, type) and issubclass(factory, TwoPlayerVectorEnv):
            return True
        if not is_vector(factory) and {"num_envs", "seed"} <= set(inspect.signature(factory).parameters):
            return True
        make(settings).close()
    except OfALeague:
        return True
    except (WarrenError, ValueError):
        return False  # the check will meet it, and say it
    return False


if __name__ == "__main__":
    budget.own_process = True
    main()
