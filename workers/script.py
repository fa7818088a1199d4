"""`python -m workers.script FILE.py`: one environment of the user's own: a script, or a function (FILE.py:FUNCTION).

It finds its run in WARREN_BROKER_URL, WARREN_REDIS_URL and WARREN_RUN, so `@remote` stubs, `Solver()` and
`EventDispatcher()` work in it. WARREN_RANK says which one of its kind it is.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tasks import context
from warren.arguments import table
from warren.environment import secret
from warren.errors import ConfigurationError
from warren.old_numpy import restore_names
from warren.user_code import load, make_importable, users_line
from workers.config.command_line import guarded
from workers.launch.kinds.user_code import Place, find
from workers.launch.kinds.user_middleware import install_from_environment
from workers.runtime.lease import present


def run(place: Place, kwargs: dict[str, Any]) -> int:
    """Run the environment to its end."""
    signal.signal(signal.SIGTERM, _stop)
    sys.argv = [place.where]
    with _present(place):
        _run(place, kwargs)
    return 0


def _present(place: Place) -> AbstractContextManager[None]:
    """Return a context that holds a lease in the run that the environment names; an empty one if it names none."""
    if not all(secret(name) for name in context.VARIABLES):
        return nullcontext()
    app, topology = context.current()
    return present(app, topology, f"script {Path(place.where).name} {os.environ.get('WARREN_RANK', '')}".strip())


def _run(place: Place, kwargs: dict[str, Any]) -> None:
    restore_names()
    if place.attribute is not None:
        getattr(load(place.where), place.attribute)(**kwargs)
    elif place.is_file:
        make_importable(Path(place.where).parent, first=True)
        runpy.run_path(place.where, run_name="__main__")
    else:
        make_importable(Path.cwd())
        runpy.run_module(place.where, run_name="__main__", alter_sys=True)


def _stop(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.script", description=__doc__)
    parser.add_argument("place", metavar="FILE.py[:FUNCTION]", help="or module[:FUNCTION]")
    parser.add_argument("--kwargs", default="{}", help="the function's arguments, as JSON")
    options = parser.parse_args()
    place, problem = find(options.place, Path.cwd())
    if problem:
        return guarded(lambda: _refuse(problem))
    kwargs: dict[str, Any] = {}

    def prepare() -> int:
        kwargs.update(table("--kwargs", options.kwargs, '{"lr": 0.1}'))
        install_from_environment()
        return 0

    if all(secret(name) for name in context.VARIABLES):
        return guarded(prepare) or run(place, kwargs)
    return guarded(prepare) or guarded(lambda: _run_outside(place, kwargs))


def _run_outside(place: Place, kwargs: dict[str, Any]) -> int:
    """Run the environment in no run, which is one error if it asks for one: its own errors keep their traceback."""
    try:
        return run(place, kwargs)
    except ConfigurationError as error:
        line = users_line(error) or str(place)
        raise ConfigurationError([f"{line}: {problem}" for problem in error.problems]) from None


def _refuse(problem: str) -> int:
    raise ConfigurationError(problem)


if __name__ == "__main__":
    sys.exit(main())
