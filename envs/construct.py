"""What goes wrong inside somebody else's environment, said as one sentence that names their line and the remedy."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from warren.errors import ConfigurationError, WarrenError

GAMES = {"pettingzoo", "pyspiel", "open_spiel"}  # modules that Warren's extra `games` installs
_HERE = str(Path(__file__).parent)
_NOT_THEIRS = ("<frozen", _HERE, *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@contextmanager
def blame(doing: str) -> Iterator[None]:
    """Turns any failure of the block into a ConfigurationError: "`doing` failed at file:line: what and why"."""
    try:
        yield
    except WarrenError:
        raise
    except (Exception, SystemExit) as error:  # a module that ends in sys.exit() must not end a worker silently
        remedy = f"; {_install(error.name)}" if isinstance(error, ModuleNotFoundError) and error.name else ""
        raise ConfigurationError(f"{doing} failed{where(error)}: {type(error).__name__}: {error}{remedy}") from error


def require(module: str, package: str, env_id: str) -> ModuleType:
    """The module of an optional package. Raises ConfigurationError, which says what to install, where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"environment {env_id!r} needs the package {package} ({error.name} is missing); {_install(module)}"
        ) from error


def pip() -> str:
    """The pip of this interpreter's environment, as one would type it here: ".venv/bin/pip"."""
    path = os.path.relpath(Path(sys.prefix) / "bin" / "pip")
    return str(Path(sys.prefix) / "bin" / "pip") if path.startswith("..") else path


def _install(module: str) -> str:
    top = module.partition(".")[0]
    if top in GAMES:
        return f"install Warren's games: {pip()} install -e '.[games]'"
    return f"if it is a package, install it: {pip()} install {top}; if it is a module of your own, set PYTHONPATH"


def where(error: BaseException) -> str:
    """The innermost line that raised, of the user's own code if any of it ran; a SyntaxError names its own line."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(("<frozen", __file__))]
    theirs = [f for f in frames if not f.filename.startswith(_NOT_THEIRS)] or frames
    return f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""
