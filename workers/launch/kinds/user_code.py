"""The user's code that a run's file names: its places, its classes of services, and their problems.

The launcher never imports it. `describe` inspects services in a separate process (this file as a module): threads that
an import starts, or an endless loop, stay out of the process that has to stop cleanly.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tasks.service import handlers_of, is_worker, services_of
from warren.errors import ConfigurationError, WarrenError, unknown_name
from warren.separate_process import ask
from warren.user_code import blame, load, make_importable, taken

IMPORT_WITHIN = 120.0  # s for the imports of all services together; torch alone takes several on a busy machine
NO_WORKER = "has no service: mark a method of it with @service (from tasks.service import service)"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Place(NamedTuple):
    """A place of code: a file (its absolute path) or a module, and the class or function in it, if one is named."""

    where: str
    attribute: str | None = None

    @property
    def is_file(self) -> bool:
        """Return whether `where` is a file."""
        return self.where.endswith(".py")

    def __str__(self) -> str:
        return self.where if self.attribute is None else f"{self.where}:{self.attribute}"


def parse(text: str) -> Place:
    """Parse `file.py`, `file.py:NAME`, `module` or `module:NAME`."""
    where, colon, name = text.rpartition(":")
    return Place(where, name) if colon else Place(text)


def find(text: str, folder: Path) -> tuple[Place, str]:
    """Return the place that `text` names, and its problem or "". Files are searched in `folder`, then here."""
    place = parse(text)
    if not place.is_file:
        if not _MODULE.fullmatch(place.where):
            return place, f"{place.where!r} is neither a file that ends in .py nor a module"
        return place, ""
    written = Path(place.where).expanduser()
    for found in (folder / written, Path.cwd() / written):
        if found.is_file():
            return Place(str(found.resolve()), place.attribute), ""
    near = [str(path.relative_to(folder)) for path in (folder / written).parent.glob("*.py")]
    return place, unknown_name("file", place.where, near, f"(looked in {folder})")


def find_class(place: Place, name: str) -> type:
    """Return the class of services at `place`: the one named there, else the one called `name`, else the only one.

    Raises ConfigurationError; the message says where the user's code failed.
    """
    module = loaded(place)
    workers = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and is_worker(value) and value.__module__ == module.__name__
    }
    if place.attribute is not None:
        found: Any = getattr(module, place.attribute, None)
        if found is None:
            raise ConfigurationError(unknown_name("class", place.attribute, workers, f"in {place.where}"))
        if not (isinstance(found, type) and is_worker(found)):
            raise ConfigurationError(f"{place.attribute} in {place.where} {NO_WORKER}")
        return found
    same = [value for key, value in workers.items() if key.lower() == name.lower()]
    if not same and isinstance(vars(module).get(name), type):
        raise ConfigurationError(f"{name} in {place.where} {NO_WORKER}")
    if same or len(workers) == 1:
        return (same or list(workers.values()))[0]
    if not workers:
        raise ConfigurationError(
            f"{place.where} holds no class with a service; write class {name}, and mark a method of it with @service"
        )
    raise ConfigurationError(
        f"{unknown_name('class', name, workers, f'in {place.where}')}; or name one: path: FILE.py:CLASS"
    )


def arguments(made: type, kwargs: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Return the constructor's arguments: `kwargs`, and `rank` if it takes one. Raises ConfigurationError."""
    parameters = inspect.signature(made).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    given = dict(kwargs)
    if "rank" not in given and (takes_any or "rank" in parameters):
        given["rank"] = rank
    problems = [unknown_name("argument", key, parameters) for key in given if key not in parameters and not takes_any]
    problems += [
        f"argument {name!r} is missing, and {made.__name__} has no default for it"
        for name, one in parameters.items()
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and name not in given
    ]
    if problems:
        raise ConfigurationError([f"kwargs: {problem}" for problem in problems])
    return given


def check_script(place: Place) -> str:
    """Return the problem of an environment's script or function, found without running it; "" for none."""
    if not place.is_file:
        make_importable(Path.cwd())
        try:
            found = importlib.util.find_spec(place.where)
        except (ImportError, ValueError) as error:
            return f"module {place.where} cannot be imported: {error}"
        return "" if found else f"there is no module {place.where}{taken(place.where)}; set PYTHONPATH, or name a file"
    try:
        tree = ast.parse(Path(place.where).read_bytes(), place.where)
    except (SyntaxError, ValueError) as error:
        return f"{place.where} is not Python: {error}"
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    if place.attribute is not None and place.attribute not in names:
        return unknown_name("function", place.attribute, names, f"in {place.where}")
    return ""


class Description(NamedTuple):
    """The services and events of a class, or its problems, found before it runs."""

    services: list[str]
    events: list[str]
    problems: list[str]


def describe(asked: Mapping[str, tuple[Place, Mapping[str, Any]]]) -> dict[str, Description]:
    """Inspect the class at each place in a separate process; return name -> its services, events and problems."""
    answer = ask(
        "workers.launch.kinds.user_code",
        {name: [*place, dict(kwargs)] for name, (place, kwargs) in asked.items()},
        IMPORT_WITHIN,
        too_long=f"importing the services took more than {IMPORT_WITHIN:g} s: {', '.join(asked)}; "
        'put code that does more than define under if __name__ == "__main__"',
        no_answer="importing the services ended the process",
    )
    return {name: Description(*lists) for name, lists in answer.items()}


def _describe(name: str, place: Place, kwargs: Mapping[str, Any]) -> Description:
    try:
        made = find_class(place, name)
        arguments(made, kwargs, 0)
        services = [spec.name for spec in services_of(made)]
    except ConfigurationError as error:
        return Description([], [], error.problems)
    except WarrenError as error:
        return Description([], [], [str(error)])
    if not services:
        return Description([], [], [f"{made.__name__}: no method is a service; mark one with @service"])
    return Description(services, sorted({on.event for on in handlers_of(made).values()}), [])


def loaded(place: Place) -> ModuleType:
    """Import the module at `place`. Raises ConfigurationError that says where its code failed."""
    with blame(f"importing {place.where}"):
        return load(place.where)


def main() -> None:
    """Answer `describe` in its process: read the question from standard input, write the answer to standard output."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of user code must not get into the answer
    asked = json.loads(sys.stdin.read())
    answers = {name: _describe(name, Place(*place), kwargs) for name, (*place, kwargs) in asked.items()}
    with answer:
        json.dump(answers, answer)
    os._exit(0)  # do not wait for threads that imports have started


if __name__ == "__main__":
    main()
