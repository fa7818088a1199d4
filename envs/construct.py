"""What goes wrong inside somebody else's environment, said as one sentence that names their line."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from warren.errors import ConfigurationError, WarrenError


@contextmanager
def blame(doing: str) -> Iterator[None]:
    """Turns any failure of the block into a ConfigurationError: "`doing` failed at file:line: what and why"."""
    try:
        yield
    except WarrenError:
        raise
    except (Exception, SystemExit) as error:  # a module that ends in sys.exit() must not end a worker silently
        raise ConfigurationError(f"{doing} failed{_where(error)}: {type(error).__name__}: {error}") from error


def require(module: str, package: str, env_id: str) -> ModuleType:
    """The module of an optional package. Raises ConfigurationError, which says what to install, where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"environment {env_id!r} needs the package {package} ({error.name} is missing): "
            f"pip install '{package}', or all of Warren's games: pip install -e '.[games]'"
        ) from error


def _where(error: BaseException) -> str:
    """The innermost line that raised, leaving out the import machinery; a SyntaxError names its own line."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames[-1].filename != str(Path(__file__)) else ""
