"""The user's middleware: named in a run's file or in WARREN_MIDDLEWARE, installed in each process of the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.middleware import install
from warren.errors import ConfigurationError
from workers.config.middleware import made
from workers.launch.kinds.user_code import Place, check_script, find

VARIABLE = "WARREN_MIDDLEWARE"  # places of the middleware, separated by commas


def find_all(written: Any, folder: Path, problems: list[str]) -> Iterator[Place]:
    """Yield the places in `written`, a list of `file.py:NAME` and `module:NAME`; append errors to `problems`."""
    if not isinstance(written, list) or not all(isinstance(one, str) for one in written):
        problems.append(f"middleware: {written!r} is not a list; write the classes, as in [traceparent.py:TraceParent]")
        return
    for text in written:
        place, problem = find(text, folder)
        if not problem and place.attribute is None:
            problem = f"{text!r} names no class; write file.py:NAME or module:NAME"
        if problem := problem or check_script(place):
            problems.append(f"middleware: {problem}")
        else:
            yield place


def install_from_environment() -> None:
    """Install the middleware that WARREN_MIDDLEWARE names in this process. Raises ConfigurationError."""
    problems: list[str] = []
    written = [one for one in os.environ.get(VARIABLE, "").split(",") if one]
    places = list(find_all(written, Path.cwd(), problems))
    if problems:
        raise ConfigurationError([f"{VARIABLE}: {problem}" for problem in problems])
    if places:
        install(*made([str(place) for place in places]))
