"""The user's middleware around calls of services, named by `file.py:NAME` or `module:NAME`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.middleware import Middleware
from warren import user_code
from warren.errors import ConfigurationError


def made(places: Sequence[str]) -> list[Middleware]:
    """Return an object of each class, or what each function returns. Raises ConfigurationError with all problems."""
    found, problems = list[Middleware](), list[str]()
    for place in places:
        try:
            found.append(_made(place))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return found


def problems(places: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each problem of the setting `middleware`."""
    try:
        made(places)
    except ConfigurationError as error:
        for problem in error.problems:
            yield f"middleware: {problem.removeprefix('middleware ')}"


def _made(place: str) -> Middleware:
    if not all(place.rpartition(":")):
        raise ConfigurationError(f"middleware {place!r} names no class; write file.py:NAME or module:NAME")
    factory = user_code.find("middleware", place)
    with user_code.blame(f"middleware {place!r}: making it"):
        one = factory()
    if not isinstance(one, Middleware):
        raise ConfigurationError(f"middleware {place!r} is not a tasks.middleware.Middleware; derive it from that")
    return one
