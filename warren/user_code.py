"""A user's own code: "path/to/file.py:name" or "my.module:name", and what goes wrong in it, said as one sentence that
names their line and the remedy."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from warren.errors import ConfigurationError, UnknownName, WarrenError

# Modules that an extra of Warren's installs -> the extra.
EXTRAS = {
    "pettingzoo": "games", "pyspiel": "games", "open_spiel": "games", "ale_py": "atari", "cv2": "atari",
    "envpool": "envpool", "vizdoom": "vizdoom", "mpe2": "mpe", "slimevolleygym": "slimevolley",
    "multi_agent_ale_py": "atari-two", "uvicorn": "gateway", "httptools": "gateway", "onnx": "onnx",
    "onnxruntime": "onnx", "onnxscript": "onnx",
}  # fmt: skip
BUILT = {
    "gfootball": "make gfootball",
    "gfootball_engine": "make gfootball",
}  # on this machine, since they have no wheels
_ROOT = Path(__file__).resolve().parents[1]
_NOT_THEIRS = (
    "<frozen",
    *(str(_ROOT / package) + os.sep for package in ("agents", "envs", "warren")),
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
)


def find(kind: str, name: str) -> Callable[..., Any]:
    """The class or function that `name` names; `kind` ("environment", "network") is what errors call it.

    Raises UnknownName for a name that the file or module does not hold, ConfigurationError for any other failure.
    """
    from warren.old_numpy import restore_names  # and with it NumPy, which a launcher, that imports this, does not need

    restore_names()
    where, _, function = name.rpartition(":")
    module = _load_file(kind, where, name) if where.endswith(".py") else _load_module(kind, where, name)
    try:
        factory: Callable[..., Any] = getattr(module, function)
    except AttributeError:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise UnknownName(kind, function, public, f"({where} has no such class or function)") from None
    return factory


def _load_module(kind: str, module: str, name: str) -> ModuleType:
    with blame(f"importing {module!r} for {kind} {name!r}"):
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(error.name + ".")):
                old_gym = "; old gym's ids start with 'gym:'" if kind == "environment" else ""
                raise ConfigurationError(
                    f"{kind} {name!r}: there is no module {error.name!r}; for a module of your "
                    f"own set PYTHONPATH or write path/to/file.py:Name{old_gym}"
                ) from None
            raise


def _load_file(kind: str, path: str, name: str) -> ModuleType:
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigurationError(f"{kind} {name!r}: there is no file {file}")
    # Each file is run once a process, as an import is; the digest keeps two files of one name apart.
    module_name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # as for a script, its neighbours can be imported; last, so they hide nothing
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    try:
        with blame(f"importing {path!r} for {kind} {name!r}"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


class blame:
    """Turns any failure of its block into a ConfigurationError: "`doing` failed at file:line: what and why".

    One object serves any number of blocks, one after another: samplers enter one at every step.
    """

    def __init__(self, doing: str) -> None:
        self.doing = doing

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # A module that ends in sys.exit() must not end a worker silently.
        if not isinstance(error, Exception | SystemExit) or isinstance(error, WarrenError):
            return
        remedy = f"; {install(error.name)}" if isinstance(error, ModuleNotFoundError) and error.name else ""
        what = f"{type(error).__name__}: {error}{copies(error)}{remedy}"
        raise ConfigurationError(f"{self.doing} failed{where(error)}: {what}") from error


def copies(error: BaseException) -> str:
    """The notes of `error`: which of several copies of an environment raised it."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def where(error: BaseException) -> str:
    """The innermost line that raised, of the user's own code if any of it ran; a SyntaxError names its own line."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(("<frozen", __file__))]
    theirs = [f for f in frames if not f.filename.startswith(_NOT_THEIRS)] or frames
    return f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""


def install(module: str) -> str:
    """What to do about a module that is missing."""
    top = module.partition(".")[0]
    if top in BUILT:
        return f"build it: {BUILT[top]}"
    if top in EXTRAS:
        return f"install Warren's {EXTRAS[top]}: {pip()} install -e '.[{EXTRAS[top]}]'"
    return f"if it is a package, install it: {pip()} install {top}; if it is a module of your own, set PYTHONPATH"


def pip() -> str:
    """The pip of this interpreter's environment, as one would type it here: ".venv/bin/pip"."""
    path = os.path.relpath(Path(sys.prefix) / "bin" / "pip")
    return str(Path(sys.prefix) / "bin" / "pip") if path.startswith("..") else path
