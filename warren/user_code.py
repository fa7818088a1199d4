"""A user's own code: the one loader of "path/to/file.py:name" and "my.module:name", and the place of its failures.

A failure becomes one sentence that names the user's line and the remedy.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from warren.errors import ConfigurationError, UnknownName, WarrenError

# Modules that an extra of Warren's installs -> the extra.
EXTRAS = {
    "pettingzoo": "games", "pyspiel": "games", "open_spiel": "games", "ale_py": "atari", "cv2": "atari",
    "envpool": "envpool", "vizdoom": "vizdoom", "mpe2": "mpe", "slimevolleygym": "slimevolley",
    "multi_agent_ale_py": "atari-two", "uvicorn": "gateway", "httptools": "gateway", "onnx": "onnx",
    "onnxruntime": "onnx", "onnxscript": "onnx", "h5py": "minari", "opentelemetry": "otel",
    "wandb": "wandb", "mlflow": "mlflow", "minatar": "minatar",
}  # fmt: skip
BUILT = ("gfootball", "gfootball_engine")  # on this machine, by `gfootball` of make or warren: it has no wheels
OURS = ("agents", "conf", "envs", "league", "tasks", "warren", "workers")  # top-level names
UNNAMED = "path/to/file.py:build"  # the name in conf/algorithm/own.yaml and conf/network/own.yaml, to be replaced
_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = (*OURS, "benchmarks")
_LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_NOT_THEIRS = ("<", *(path + os.sep for path in (*(str(_ROOT / package) for package in _PACKAGES), *_LIBRARIES)))


def is_users(file: str) -> bool:
    """Return whether the code of `file`, a name in a traceback, is neither Warren's nor a library's."""
    return not (file.startswith(_NOT_THEIRS) or "site-packages" in file or "dist-packages" in file)


def users_line(error: BaseException) -> str:
    """Return "file:line" of the innermost user code in the traceback of `error`; "" if none ran."""
    theirs = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""


def where(error: BaseException) -> str:
    """Return " at file:line" of the user's code or, if none of it ran, of a library's; "" for a SyntaxError.

    The message of a SyntaxError has its own line.
    """
    if isinstance(error, SyntaxError):
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(("<", __file__))]
    line = users_line(error) or (f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "")
    return f" at {line}" if line else ""


class _OursFirst:
    """Finder of Warren's own packages, ahead of sys.path: no folder there that has the name of one hides it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(_ROOT)]) if path is None and name in OURS else None


def make_importable(folder: Path, *, first: bool = False) -> None:
    """Add a folder of the user's modules to the end of sys.path, or the beginning; it hides no package of Warren's."""
    if _OursFirst not in sys.meta_path:
        sys.meta_path.insert(0, _OursFirst)
    if str(folder) not in sys.path:
        sys.path.insert(0 if first else len(sys.path), str(folder))


def load(place: str) -> ModuleType:
    """Import `place`, a file that ends in .py or a module's name, once per process. Raises the errors of its code.

    A file can import its neighbours, as a script can; they hide no installed module. It has its own name where an
    import of that name would find it, so that neighbours which import it get the same module; else a digest is added.
    """
    from warren.old_numpy import restore_names  # and with it NumPy, which a launcher, that imports this, does not need

    restore_names()
    if not place.endswith(".py"):
        make_importable(Path.cwd())
        return importlib.import_module(place)
    file = Path(place).expanduser().resolve()
    make_importable(file.parent)
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    for name in (file.stem, f"{file.stem}_{digest}"):
        if (known := sys.modules.get(name)) is not None and getattr(known, "__file__", None) == str(file):
            return known
    name = file.stem if _is_found(file) else f"{file.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_found(file: Path) -> bool:
    """Return whether an import of the file's name would find this file."""
    if not file.stem.isidentifier() or file.stem in sys.modules:
        return False
    importlib.invalidate_caches()  # the file may be newer than the folder's listing
    spec = importlib.util.find_spec(file.stem)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file


def find(kind: str, name: str) -> Callable[..., Any]:
    """Return the class or function that `name` names; `kind` ("environment", "network") is its noun in errors.

    Raises UnknownName for a name that the file or module does not hold, ConfigurationError for any other failure.
    """
    module = module_of(kind, name)
    place, _, attribute = name.rpartition(":")
    try:
        factory: Callable[..., Any] = getattr(module, attribute)
    except AttributeError:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise UnknownName(kind, attribute, public, f"({place} has no such class or function)") from None
    if not callable(factory):
        raise ConfigurationError(f"{kind} {name!r} is a {type(factory).__name__}; name a class or a function")
    return factory


def module_of(kind: str, name: str) -> ModuleType:
    """Import and return the module of `name`, "path/to/file.py:NAME" or "my.module:NAME".

    Raises ConfigurationError for any failure.
    """
    place = name.rpartition(":")[0]
    if name == UNNAMED and kind in ("algorithm", "network") and not Path(place).exists():
        raise ConfigurationError(f"{kind}=own: names no code; give {kind}.name=FILE.py:build, your file and function")
    if place.endswith(".py") and not (file := Path(place).expanduser().resolve()).is_file():
        raise ConfigurationError(f"{kind} {name!r}: there is no file {file}")
    with blame(f"importing {place!r} for {kind} {name!r}"):
        try:
            return load(place)
        except ModuleNotFoundError as error:
            if place.endswith(".py") or not error.name or not f"{place}.".startswith(f"{error.name}."):
                raise
            old_gym = "; old gym's ids start with 'gym:'" if kind == "environment" else ""
            raise ConfigurationError(
                f"{kind} {name!r}: there is no module {error.name!r}{taken(place)}; for a module of your "
                f"own set PYTHONPATH or write path/to/file.py:Name{old_gym}"
            ) from None


def call(doing: str, factory: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    """Return `factory(*given, **named)`, a user's class or function.

    Raises ConfigurationError, which names it, its place and its parameters, if it does not take these arguments.
    """
    try:
        return factory(*given, **named)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised within it
            raise
        if not (takes := _takes_others(factory, given, named)):
            raise
        raise ConfigurationError(f"{doing}: {error}; {takes}") from error


def _takes_others(factory: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return the place and the parameters of `factory` if they do not fit these arguments, else ""."""
    try:
        signature = inspect.signature(factory)
        place = f"{inspect.getsourcefile(factory)}:{inspect.getsourcelines(factory)[1]}"
    except (TypeError, ValueError, OSError):  # it is not written in Python
        return ""
    try:
        signature.bind(*given, **named)
    except TypeError:
        return f"it takes {signature} at {place}; give it these arguments, or change its parameters"
    return ""


class blame:
    """A context that turns any failure of its block into a ConfigurationError: "`doing` failed at file:line: ...".

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
    """Return the notes of `error` as text: they name the copy of an environment that raised it."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def install(module: str) -> str:
    """Return the remedy for a missing module, as a clause."""
    top = module.partition(".")[0]
    if top in BUILT:
        return f"build it: {builder('gfootball')}"
    if top in EXTRAS:
        return f"install Warren's {EXTRAS[top]}: {pip()} install {requirement(EXTRAS[top])}"
    return f"if it is a package, install it: {pip()} install {top}; if it is a module of your own, set PYTHONPATH"


def taken(module: str) -> str:
    """Return a clause which says that the package of a missing module is one of Warren's, or ""."""
    top = module.partition(".")[0]
    return f" ({top!r} is a package of Warren's)" if top in OURS else ""


def requirement(extra: str) -> str:
    """Return pip's requirement for one of Warren's extras: of a checkout, or of the installed package."""
    if not _is_checkout():
        return f"'warren[{extra}]'"
    return f"-e '{'.' if Path.cwd() == _ROOT else _ROOT}[{extra}]'"


def builder(package: str) -> str:
    """Return the command that builds a package which has no wheels, `horovod` or `gfootball`."""
    return f"{'make' if _is_checkout() else 'warren'} {package}"


def _is_checkout() -> bool:
    return (_ROOT / "Makefile").exists()


def pip() -> str:
    """Return the pip of this interpreter's environment as typed in this folder, such as ".venv/bin/pip"."""
    path = os.path.relpath(Path(sys.prefix) / "bin" / "pip")
    return str(Path(sys.prefix) / "bin" / "pip") if path.startswith("..") else path
