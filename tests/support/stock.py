"""Processes of `stock_program.py`: a client and a worker with Celery and without this project."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from support.calling import Calling
from support.waiting import PATIENCE, until

PROGRAM = Path(__file__).with_name("stock_program.py")


def site_of(folder: Path, *requirements: str) -> Path:
    """Make `folder`, from which only the installed `requirements` and theirs can be imported; return it."""
    folder.mkdir()
    found, wanted = set[tuple[str, str | None]](), list(requirements)
    while wanted:
        name, extra = re.fullmatch(r"([\w.-]+)(?:\[(\w+)\])?", wanted.pop()).groups()  # type: ignore[union-attr]
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for other systems or versions of Python
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for required in distribution.requires or ():
            what, _, marker = required.partition(";")
            if "extra" not in marker or (extra and re.search(f"extra == .{extra}.", marker)):
                wanted.append(re.match(r"[\w.-]+(\[\w+\])?", what)[0])  # type: ignore[index]
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return folder


class StockProgram:
    """The program as a client of `run`, driven by `do(COMMAND, ...)`, and as a worker of its own tasks."""

    def __init__(self, run: Calling, folder: Path) -> None:
        self._command = [sys.executable, "-I", "-S", str(PROGRAM), str(site_of(folder / "site", "celery[redis]"))]
        self._command += [run.broker_url, run.redis_url, run.topology.run]
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self._client = self._start("client")
        self._keys = 0
        self.queue = f"own-{run.topology.run}"  # for its own tasks
        self._start("worker")
        until(lambda: b"ready." in (folder / "stock-worker.log").read_bytes())

    def _start(self, role: str) -> subprocess.Popen[str]:
        log = (self._folder / f"stock-{role}.log").open("wb")
        command = self._command + ([role] if role == "worker" else [])
        process = subprocess.Popen(
            command, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE if role == "client" else log, stderr=log,
            text=True,
        )  # fmt: skip
        log.close()
        self._processes.append(process)
        return process

    def do(self, command: str, *arguments: Any, **how: Any) -> Any:
        """Have the client run `command`; return its answer. Raises RuntimeError for an exception there."""
        stdin, stdout = self._client.stdin, self._client.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"do": command, "with": arguments, "how": how}) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        if "raised" in answer:
            raise RuntimeError(f"{answer['raised']}: {answer['text']}")
        return answer["answer"]

    def apply(self, what: dict[str, Any], **how: Any) -> str:
        """Send a signature; return the key of its result."""
        self._keys += 1
        self.do("apply", key := f"result-{self._keys}", what, **how)
        return key

    def call(self, name: str, *args: Any, **how: Any) -> str:
        """Send a call; return the key of its result."""
        return self.apply(service(name, *args), **how)

    def get(self, key: str, **how: Any) -> Any:
        return self.do("get", key, **how)

    def state(self, key: str) -> str:
        found = self.do("look", key)
        return str(found.get("state", found.get("states")))

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=PATIENCE)


def service(name: str, *args: Any, **options: Any) -> dict[str, Any]:
    return {"task": name, "args": args, "options": options}
