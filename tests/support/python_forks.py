"""`python -m MODULE WORDS` many times over, each in a fork of one process that has imported what takes seconds.

python python_forks.py MODULE...     imports those, then reads a job a line, runs it, and prints its exit status
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

PATIENCE = 100  # s for a command; a bound against hanging, not an expectation


class PythonForks:
    """Use as a context manager."""

    def __init__(self, *modules: str) -> None:
        """`modules` are imported by the process that is forked."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, module: str, words: list[str], folder: Path, given: Mapping[str, str], typed: str) -> tuple[int, str]:
        """Return exit status and output of `python -m module words` in `folder`, with the environment `given`."""
        job = {"module": module, "words": words, "folder": str(folder), "given": dict(given), "typed": typed}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        return status, (folder / "output").read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def become(job: dict[str, Any]) -> None:
    """Make this fork what its job says: never returns."""
    os.chdir(job["folder"])
    Path("input").write_text(job["typed"])
    for name, mode, numbers in (("input", "r", (0,)), ("output", "w", (1, 2))):
        with Path(name).open(mode) as file:
            for number in numbers:
                os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(job["given"])
    sys.argv, sys.path[0] = [job["module"], *job["words"]], job["folder"]
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # the pages' benchmarks are typed in a checkout
    signal.alarm(PATIENCE)
    runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
    sys.exit()


def main() -> None:
    """Import, then fork for each job."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
