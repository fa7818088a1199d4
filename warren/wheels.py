"""Packages without wheels: built once on this machine, kept in the cache folder, installed from there."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from warren.errors import ConfigurationError, WarrenError

SAY_EVERY = 10.0  # s between lines of progress, if the output is not a terminal
_PERCENT = re.compile(rb"\[ *(\d+)%\]")  # make's, as CMake has it


def cache_folder() -> Path:
    """Return the cache folder: WARREN_CACHE, or ~/.cache/warren. Raises ConfigurationError without either."""
    if given := os.environ.get("WARREN_CACHE"):
        return Path(given)
    try:
        return Path.home() / ".cache" / "warren"
    except RuntimeError:  # as in a container that runs as a user whom it does not know
        raise ConfigurationError(f"user {os.getuid()} has no home folder; set HOME or WARREN_CACHE") from None


def cached(folder: Path) -> Path | None:
    """Return the wheel that was built into `folder` before, or None."""
    return next(iter(folder.glob("*.whl")), None)


def build(
    what: str, requirement: str, folder: Path, environment: Mapping[str, str], about: int, python: str = sys.executable
) -> Path:
    """Build the wheel of `requirement` by `python`'s own pip and packages, printing progress; return its path.

    `requirement`: a release, or the folder of its sources. `what`: its name in messages. `environment`: additional
    variables. `about`: the seconds that two cores take. Raises WarrenError with the end of the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    command = [
        *(python, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"),
        *("--no-cache-dir", "--wheel-dir", str(folder), requirement),
    ]
    variables = {
        **os.environ,
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
        "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
        **environment,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT)
        _watch(what, process, log, about)
    wheel = cached(folder)
    if process.returncode != 0 or wheel is None:
        last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise WarrenError(f"{what} was not built; the end of {log}:\n{last}")
    return wheel


def sources(requirement: str, place: Path) -> Path:
    """Download the sources of `requirement`, a release, unpack them in `place` and return their folder.

    Raises WarrenError where they cannot be downloaded.
    """
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir"),
        *("--no-binary", ":all:", "--dest", str(place), requirement),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archive = next(iter(place.glob("*.tar.gz")), None)
    if done.returncode != 0 or archive is None:
        raise WarrenError(f"could not download the sources of {requirement}:\n{done.stderr.strip()[-2000:]}")
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):  # Debian 12's Python 3.11.2 has none yet
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(place)
    return place / archive.name.removesuffix(".tar.gz")


def install(wheel: Path, needed: Sequence[str]) -> None:
    """Install the wheel, and those of the `needed` requirements whose package is missing. Raises WarrenError."""
    command = [sys.executable, "-m", "pip", "install", "--quiet"]
    lacking = [one for one in needed if not _has(re.split(r"[<>=!~\[]", one)[0])]
    for more in (lacking, ["--no-deps", "--force-reinstall", str(wheel)]):
        if more and subprocess.run([*command, *more], check=False).returncode != 0:
            raise WarrenError(f"pip could not install {' '.join(more)}")


def _watch(what: str, process: subprocess.Popen[bytes], log: Path, about: int) -> None:
    """Print the progress of a build until it ends: in one line on a terminal, else in a line now and then."""
    began, said, terminal = time.monotonic(), 0.0, sys.stdout.isatty()
    while True:
        try:
            process.wait(1.0)
            break
        except subprocess.TimeoutExpired:
            done = _PERCENT.findall(log.read_bytes())
            seconds = time.monotonic() - began
            text = f"building {what}: {int(done[-1]) if done else 0} % after {seconds:.0f} s (of about {about})"
            if terminal:
                print(f"\r{text}", end="", flush=True)
            elif seconds - said >= SAY_EVERY:
                said = seconds
                print(text, flush=True)
    if terminal:
        print()


def _has(name: str) -> bool:
    try:
        importlib.metadata.version(name)
        return True
    except importlib.metadata.PackageNotFoundError:
        return False
