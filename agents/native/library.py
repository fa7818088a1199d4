"""The compiled library: one for each processor and source, built once; none where that fails or is not wanted."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from warren.wheels import cache_folder

CHOICES = ("auto", "native", "torch")  # auto: native where there is a compiler, or a library that one has built
SOURCE = Path(__file__).with_name("perceptron.c")
COMPILERS = ("cc", "gcc", "clang")  # the first that there is; the variable CC names another
ALWAYS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC")
MACHINE = (("-march=native",), ("-mcpu=native",), ())  # this processor's instructions, as compilers name them
LONGEST = 120  # s that a compiler gets

_choice = "auto"


class _Unbuilt(Exception):
    """Raised with the reason, a clause."""


def choose(choice: str) -> None:
    """Let this process compute perceptrons as `choice`, of CHOICES, says."""
    global _choice
    _choice = choice


def library() -> ctypes.CDLL | None:
    """Return the library, which the first call of all processes compiles; None where torch is to compute."""
    return None if _choice == "torch" else _loaded()[0]


def lacking() -> str | None:
    """Return why there is no library, a clause; None where there is one."""
    return _loaded()[1]


@functools.cache
def _loaded() -> tuple[ctypes.CDLL | None, str | None]:
    try:
        return _typed(ctypes.CDLL(str(_built()))), None
    except _Unbuilt as why:
        return None, str(why)
    except OSError as error:  # a folder that cannot be written, a library of another machine
        return None, f"{type(error).__name__}: {error}"


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for name in ("work_size", "kept_size", "gradient_size", "kinds_size"):
        getattr(loaded, name).restype = ctypes.c_int64
    for name in ("forward", "backward", "collect", "act", "ppo"):
        getattr(loaded, name).restype = None
    return loaded


def _built() -> Path:
    folder = cache_folder() / "native"
    file = folder / f"{_identity()}.so"
    if file.exists():
        return file
    compiler = _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a run's processes start together: one compiles, the others wait
        if not file.exists():
            _compile(compiler, file)
    return file


def _identity() -> str:
    """Return what tells libraries apart: the source, how it is compiled, and the processor's instructions."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(errors="replace").splitlines() if known.exists() else []
    features = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())
    parts = (SOURCE.read_bytes(), repr((ALWAYS, MACHINE, platform.system(), platform.machine(), features)).encode())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:24]


def _compiler() -> list[str]:
    names = [os.environ["CC"]] if os.environ.get("CC") else COMPILERS
    for name in names:
        for words in ([name], name.split()):  # CC may hold options as well: "ccache gcc", "gcc -m64"
            if words and (found := shutil.which(words[0])):
                return [found, *words[1:]]
    raise _Unbuilt(f"there is no C compiler ({', '.join(names)})")


def _compile(compiler: list[str], file: Path) -> None:
    part = file.with_name(f"{file.stem}.{os.getpid()}.part")
    said = ""
    for machine in MACHINE:
        command = [*compiler, *ALWAYS, *machine, str(SOURCE), "-o", str(part), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LONGEST)
        except subprocess.TimeoutExpired:
            said = f"took more than {LONGEST} s"
            break
        if done.returncode == 0:
            part.replace(file)
            return
        said = next((line for line in done.stderr.splitlines() if "error" in line), "failed").strip()
    part.unlink(missing_ok=True)
    raise _Unbuilt(f"{' '.join(compiler)} could not compile {SOURCE.name}: {said}")
