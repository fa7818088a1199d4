"""`make horovod`: builds Horovod for this Python and this torch, once, and installs it.

Horovod's last release, 0.28.1, has no wheels. It is built with gloo and only for torch. Its build files are too old to
name torch's language standard, so a compiler wrapper appends it. Its sources are patched to let ranks be on several
machines: unpatched, process sets ignore the chosen network interface and listen at the address of the machine's host
name, which is loopback on most machines. The wheel is kept in the cache folder (WARREN_CACHE, or ~/.cache/warren),
by the versions of Python and torch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from warren import wheels
from warren.errors import ConfigurationError, WarrenError

RELEASE = "0.28.1"
MENDED = "+warren.1"  # end of the version of a Horovod built here
VERSION = f"{RELEASE}{MENDED}"
# File of the sources -> text that occurs in it once, and its replacement.
MENDS = {
    "horovod/__init__.py": (f"__version__ = '{RELEASE}'", f"__version__ = '{VERSION}'"),
    "horovod/common/gloo/gloo_context.cc": (
        "assert(global_context.IsEnabled());",
        "assert(global_context.IsEnabled());\n  gloo_iface_ = global_context.gloo_iface_;",
    ),
}
STANDARD = "-std=c++20"  # torch's own
FEATURES = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
}
NEEDED = ("cloudpickle", "psutil", "pyyaml", "packaging")  # Horovod needs them when it runs


def main(argv: list[str]) -> int:
    """Build Horovod, or take it from the cache, and install it; return the exit status."""
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
        wheels.install(wheel or build(), NEEDED)
        if not works():
            raise WarrenError("Horovod is installed, and cannot be imported: python -c 'import horovod.torch' says why")
        print(f"installed Horovod {VERSION}, for torch {_torch()}: allreduce=horovod")
        return 0
    except WarrenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status


def works() -> bool:
    """Return whether this environment can import the Horovod built here, with its torch."""
    check = f"import horovod, horovod.torch; assert horovod.__version__ == {VERSION!r}"
    return subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0


def folder() -> Path:
    """Return the folder that keeps the wheel for this Python and this torch."""
    tag = f"{sys.implementation.cache_tag}-{platform.machine()}-torch-{_torch()}"
    return wheels.cache_folder() / "horovod" / f"{VERSION}-{tag}"


def cached() -> Path | None:
    """Return the wheel that was built before; None if there is none."""
    return wheels.cached(folder())


def missing() -> list[str]:
    """Return the build tools that this machine lacks, each with how to get it."""
    found = []
    if not shutil.which("c++"):
        found.append("a C++ compiler (c++): on Debian or Ubuntu, apt-get install g++")
    if not shutil.which("cmake"):
        found.append("cmake: apt-get install cmake, or pip install cmake")
    if not shutil.which("make"):
        found.append("make: apt-get install make")
    if not (Path(sysconfig.get_config_var("INCLUDEPY")) / "Python.h").exists():
        found.append("Python's headers (Python.h): on Debian or Ubuntu, apt-get install python3-dev")
    return found


def build() -> Path:
    """Build the wheel, which takes two cores five minutes; return it. Raises ConfigurationError and WarrenError."""
    if lacking := missing():
        raise ConfigurationError([f"Horovod cannot be built without {one}" for one in lacking])
    with tempfile.TemporaryDirectory(prefix="warren-horovod-") as place:
        wrapper = Path(place) / "c++"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("c++")} "$@" {STANDARD}\n', encoding="utf-8")
        wrapper.chmod(0o755)
        variables = {**FEATURES, "CXX": str(wrapper)}
        sources = wheels.sources(f"horovod=={RELEASE}", Path(place))
        mend(sources)
        return wheels.build(f"Horovod {VERSION}", str(sources), folder(), variables, about=300)


def mend(sources: Path) -> None:
    """Patch Horovod's unpacked sources by MENDS. Raises WarrenError if a text to replace is not in them just once."""
    for name, (before, after) in MENDS.items():
        text = (sources / name).read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise WarrenError(
                f"{name} of Horovod {RELEASE} has not the lines that Warren patches: the download is not that release"
            )
        (sources / name).write_text(text.replace(before, after), encoding="utf-8")


def _torch() -> str:
    return importlib.metadata.version("torch")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
