"""`python -m envs.check NAME`: find by random play the faults of an environment that would disturb a run.

    python -m envs.check CartPole-v1
    python -m envs.check ALE/Pong-v5 preprocessing=atari --steps 2000
    python -m envs.check path/to/game.py:MyGame kwargs.size=5
    python -m envs.check openspiel:leduc_poker

For one agent's environments the settings of `env.` may follow the name, for a game only `kwargs.NAME=VALUE`. The exit
status is 0 without a problem, 1 with one, 2 if the command is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import fields
from typing import Any

from envs.checking.budget import STUCK
from envs.checking.first_steps import check
from envs.checking.report import PROBLEMS
from envs.settings import EnvSettings
from warren.errors import ConfigurationError, unknown_name
from warren.separate_process import python

__all__ = ["check"]

STEPS = 5000


def main(arguments: list[str] | None = None) -> int:
    """Start a process that plays and prints its report; print a problem if that process does not end by itself."""
    parser = argparse.ArgumentParser(
        prog="python -m envs.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="the environment's id, as env.id or league.env take it")
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE", help="as in preprocessing=atari kwargs.size=5")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"random steps, {STEPS} by default")
    given = parser.parse_intermixed_args(arguments)
    try:
        if given.steps < 1:
            raise ConfigurationError(f"--steps: {given.steps} is too few; at least 1")
        question = {"settings": {"id": given.name, **parse(given.settings)}, "steps": given.steps}
    except ConfigurationError as error:
        print("\n".join(f"error: {problem}" for problem in error.problems), file=sys.stderr)
        return 2
    command = python("-m", "envs.checking.player", json.dumps(question))
    status = subprocess.run(command, check=False).returncode
    if status in (0, PROBLEMS):
        return 1 if status else 0
    print(
        f"problem  process      environment {given.name!r} ended the process that played it (status {status}), or one "
        f"call took more than {STUCK:g} s; what it printed stands above",
    )
    return 1


def parse(texts: list[str]) -> dict[str, Any]:
    """Return EnvSettings' fields from "NAME=VALUE" and "kwargs.NAME=VALUE"; values are JSON, or else text."""
    known = [field.name for field in fields(EnvSettings) if field.name != "id"]
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, _, inner = name.removeprefix("env.").partition(".")
        if not equals or name not in known:
            raise ConfigurationError(
                unknown_name("setting", text, [f"{field}=" for field in known], "it is NAME=VALUE, as in frame_stack=4")
            )
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        if inner:
            settings.setdefault(name, {})[inner] = read
        else:
            settings[name] = read
    return settings


if __name__ == "__main__":
    sys.exit(main())
