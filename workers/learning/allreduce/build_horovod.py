"""`make horovod`: builds Horovod for this Python and this torch, once, and installs it.

Horovod's last release, 0.28.1, has no wheels. It is built with gloo and for torch alone, with torch's own language
standard, which its build files are too old to name: a compiler wrapper appends it. The wheel is kept in the cache
folder (WARREN_CACHE, or ~/.cache/warren), by the versions of Python and torch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from warren.errors import ConfigurationError, WarrenError

VERSION = "0.28.1"
STANDARD = "-std=c++20"  # torch's own
FEATURES = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
}
NEEDED = ("cloudpickle", "psutil", "pyyaml", "packaging")  # by Horovod when it runs
SAY_EVERY = 10.0  # s between lines of progress, where the output is no terminal
_PERCENT = re.compile(rb"\[ *(\d+)%\]")


def main(argv: list[str]) -> int:
    """Build, or take from the cache, and install; the exit status."""
    parser = argparse.ArgumentParser(prog="make horovod", description=__doc__)
    parser.add_argument("--if-cached", action="store_true", help="only where it was built before")
    options = parser.parse_args(argv)
    try:
        if works():
            print(f"Horovod {VERSION} is there, for torch {_torch()}")
            return 0
        wheel = cached()
        if wheel is None and options.if_cached:
            print(f"Horovod {VERSION} was not built before for this Python and torch; `make horovod` builds it")
            return 0
        install(wheel or build())
        if not works():
            raise WarrenError("Horovod is installed, and cannot be imported: python -c 'import horovod.torch' says why")
        print(f"installed Horovod {VERSION}, for torch {_torch()}: allreduce=horovod")
        return 0
    except WarrenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status


def works() -> bool:
    """Whether this environment has it, built for its torch."""
    check = f"import horovod, horovod.torch; assert horovod.__version__ == {VERSION!r}"
    return subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0


def folder() -> Path:
    """Where the wheel for this Python and this torch is kept."""
    cache = Path(os.environ.get("WARREN_CACHE") or Path.home() / ".cache" / "warren")
    tag = f"{sys.implementation.cache_tag}-{platform.machine()}-torch-{_torch()}"
    return cache / "horovod" / f"{VERSION}-{tag}"


def cached() -> Path | None:
    """The wheel that was built before."""
    return next(iter(folder().glob("*.whl")), None)


def missing() -> list[str]:
    """What a build needs and this machine lacks, each with how to get it."""
    found = []
    if not shutil.which("c++"):
        found.append("a C++ compiler (c++): on Debian or Ubuntu, apt-get install g++")
    if not shutil.which("cmake"):
        found.append("cmake: apt-get install cmake, or pip install cmake")
    if not shutil.which("make"):
        found.append("make: apt-get install make")
    return found


def build() -> Path:
    """The wheel, built now: five minutes of two cores. Raises ConfigurationError and WarrenError."""
    if lacking := missing():
        raise ConfigurationError([f"Horovod cannot be built without {one}" for one in lacking])
    target = folder()
    target.mkdir(parents=True, exist_ok=True)
    log = target / "build.log"
    with tempfile.TemporaryDirectory(prefix="warren-horovod-") as place:
        wrapper = Path(place) / "c++"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("c++")} "$@" {STANDARD}\n')
        wrapper.chmod(0o755)
        environment = {
            **os.environ,
            **FEATURES,
            "CXX": str(wrapper),
            "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        command = [
            *(sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"),
            *("--no-cache-dir", "--wheel-dir", str(target), f"horovod=={VERSION}"),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            _watch(process, log)
    wheel = cached()
    if process.returncode != 0 or wheel is None:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise WarrenError(f"Horovod was not built; the end of {log}:\n{last}")
    return wheel


def install(wheel: Path) -> None:
    """Install the wheel and what it needs. Raises WarrenError."""
    command = [sys.executable, "-m", "pip", "install", "--quiet"]
    lacking = [name for name in NEEDED if not _has(name)]
    for more in ([*lacking], ["--no-deps", "--force-reinstall", str(wheel)]):
        if more and subprocess.run([*command, *more], check=False).returncode != 0:
            raise WarrenError(f"pip could not install {' '.join(more)}")


def _watch(process: subprocess.Popen[bytes], log: Path) -> None:
    """Say how far the build is, until it ends: in one line of a terminal, else a line now and then."""
    began, said, terminal = time.monotonic(), 0.0, sys.stdout.isatty()
    while True:
        try:
            process.wait(1.0)
            break
        except subprocess.TimeoutExpired:
            done = _PERCENT.findall(log.read_bytes())
            seconds = time.monotonic() - began
            text = f"building Horovod {VERSION}: {int(done[-1]) if done else 0} % after {seconds:.0f} s (of about 300)"
            if terminal:
                print(f"\r{text}", end="", flush=True)
            elif seconds - said >= SAY_EVERY:
                said = seconds
                print(text, flush=True)
    if terminal:
        print()


def _torch() -> str:
    return importlib.metadata.version("torch")


def _has(name: str) -> bool:
    try:
        importlib.metadata.version(name)
        return True
    except importlib.metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
