"""C compiled on this machine at the first use: one library for each processor and source, kept in the cache folder.

For machines without a compiler `python -m warren.compiled SOURCE.c ...` compiles ahead, for each level of this
architecture, into the folder `built` beside each source. The image of containers is made with it.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warren.errors import ConfigurationError
from warren.processor import LEVELS, levels_here, processor_features
from warren.wheels import cache_folder

COMPILERS = ("cc", "gcc", "clang")  # the first that there is; the variable CC names another
ALWAYS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC")
# GCC splits multiply-adds of AMD's processors where they follow each other, in some of a product's loops and not in
# others: results would depend on how many rows a call has.
WHOLE = "--param=avoid-fma-max-bits=0"
# This processor's instructions, as compilers name them.
MACHINE = (("-march=native", WHOLE), ("-march=native",), ("-mcpu=native",), ())
LONGEST = 120  # s that a compiler gets


class Unbuilt(Exception):
    """Raised with the reason, a clause."""


class Compiled:
    """The library of one source and the headers beside it: built once, by the first of all processes that asks.

    If building fails, it is the one that was compiled ahead; without that, there is no library.
    """

    def __init__(self, source: Path, returned: Mapping[str, Any]) -> None:
        """Take `returned`, the C type that each function returns, or None, by name."""
        self.source, self._returned = source, returned
        self._found: tuple[ctypes.CDLL | None, str | None] | None = None

    def library(self) -> ctypes.CDLL | None:
        """Return the library; None where there is none."""
        return self._loaded()[0]

    def lacking(self) -> str | None:
        """Return why there is no library, a clause; None where there is one."""
        return self._loaded()[1]

    def build_ahead(self) -> list[Path]:
        """Compile for each level of this machine's architecture; return the libraries. Raises Unbuilt."""
        command, files = compiler(), []
        for level in LEVELS.get(platform.machine(), {}):
            files.append(self._ahead(level))
            files[-1].parent.mkdir(exist_ok=True)
            self._compile(command, files[-1], ((f"-march={level}", WHOLE), (f"-march={level}",)))
        return files

    def forget(self) -> None:
        """Look for the library again at the next call."""
        self._found = None

    def _loaded(self) -> tuple[ctypes.CDLL | None, str | None]:
        if self._found is None:
            try:
                self._found = self._load(), None
            except (Unbuilt, ConfigurationError) as why:  # the latter: there is no cache folder
                self._found = None, str(why)
            except OSError as error:  # a folder that cannot be written
                self._found = None, f"{type(error).__name__}: {error}"
        return self._found

    def _load(self) -> ctypes.CDLL:
        try:
            loaded = self._compiled_here()
        except (Unbuilt, ConfigurationError, OSError):
            ahead = next((file for level in levels_here() if (file := self._ahead(level)).exists()), None)
            if ahead is None:
                raise
            loaded = ctypes.CDLL(str(ahead))
        for name, kind in self._returned.items():
            getattr(loaded, name).restype = kind
        return loaded

    def _compiled_here(self) -> ctypes.CDLL:
        try:
            return ctypes.CDLL(str(self._built()))
        except OSError:  # built on another machine
            return ctypes.CDLL(str(self._built(anew=True)))

    def _built(self, anew: bool = False) -> Path:
        folder = cache_folder() / "native"
        file = folder / f"{self._identity()}.so"
        if not anew and _whole(file):
            return file
        command = compiler()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a run's processes start together: one compiles, the others wait
            if anew or not _whole(file):
                self._compile(command, file, MACHINE)
        return file

    def _ahead(self, level: str) -> Path:
        """Return the place of the library compiled ahead; its name has a hash of the source, so that none is stale."""
        digest = hashlib.sha256(self._text()).hexdigest()[:24]
        return self.source.parent / "built" / f"{self.source.stem}-{level}-{digest}.so"

    def _identity(self) -> str:
        """Return a hash that tells libraries apart: of the source, how it is compiled, and the processor's features."""
        parts = ALWAYS, MACHINE, platform.system(), platform.machine(), processor_features() or platform.processor()
        return hashlib.sha256(self._text() + repr(parts).encode()).hexdigest()[:24]

    def _text(self) -> bytes:
        """Return the source and the headers beside it, which it may include."""
        return b"".join(path.read_bytes() for path in (self.source, *sorted(self.source.parent.glob("*.h"))))

    def _compile(self, command: list[str], file: Path, machines: Sequence[Sequence[str]]) -> None:
        """Compile into `file` with the first options of `machines` that the compiler takes. Raises Unbuilt."""
        part = file.with_name(f"{file.stem}.{os.getpid()}.part")
        said = ""
        for machine in machines:
            whole = [*command, *ALWAYS, *machine, str(self.source), "-o", str(part), "-lm"]
            try:
                done = subprocess.run(whole, capture_output=True, text=True, errors="replace", timeout=LONGEST)
            except subprocess.TimeoutExpired:
                said = f"took more than {LONGEST} s"
                break
            if done.returncode == 0:
                _sum_of(file).write_text(_sha256(part), encoding="utf-8")
                part.replace(file)
                return
            said = next((line for line in done.stderr.splitlines() if "error" in line), "failed").strip()
        part.unlink(missing_ok=True)
        raise Unbuilt(f"{' '.join(command)} could not compile {self.source.name}: {said}")


def compiler() -> list[str]:
    """Return the C compiler and its options. Raises Unbuilt where there is none."""
    names = [os.environ["CC"]] if os.environ.get("CC") else COMPILERS
    for name in names:
        for words in ([name], name.split()):  # CC may hold options as well: "ccache gcc", "gcc -m64"
            if words and (found := shutil.which(words[0])):
                return [found, *words[1:]]
    raise Unbuilt(f"no C compiler was found ({', '.join(names)})")


def _whole(file: Path) -> bool:
    """Return True if the library is there and complete. Raises Unbuilt for one that another user owns."""
    sums = _sum_of(file)
    if not file.exists() or not sums.exists():
        return False
    for one in (file, sums):
        if (owner := one.stat().st_uid) != os.getuid():
            raise Unbuilt(
                f"{one} belongs to user {owner}, not to {os.getuid()}, who would run its code; delete it, or give "
                "WARREN_CACHE a folder of your own"
            )
    return sums.read_text(encoding="utf-8") == _sha256(file)


def _sum_of(file: Path) -> Path:
    return file.with_suffix(".sha256")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> int:
    """Compile each source ahead, print the libraries, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE.c", help="source of one library")
    try:
        for source in parser.parse_args().sources:
            print(*Compiled(source, {}).build_ahead(), sep="\n")
    except (Unbuilt, OSError) as why:
        print(f"not all is compiled ahead: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
