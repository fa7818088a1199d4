"""`python -m workers.run` as a user starts it, on the session's servers, observed from outside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil

from support.launched import Launched

SERVICES = """
import os
from tasks.events import EventDispatcher
from tasks.service import Worker, event_handler, service

class Adder(Worker):
    def __init__(self, plus=0, **kwargs):
        super().__init__()
        self.plus, self.rank, self.weights = plus, kwargs["rank"], None

    @service
    def add(self, a, b):
        return None if self.weights is None else (a + b + self.plus, self.rank)

    @event_handler("policy_update")
    def update(self, weights):
        self.weights = weights

class Learner(Worker):
    def __init__(self):
        super().__init__()
        self.ed = EventDispatcher()
        self.ed.fire("policy_update", payload={"w": 1})
        self.seen = 0

    @service(response=False, batch=5)
    def store(self, experiences):
        self.seen += len(experiences)
        return [None] * len(experiences)

    @service
    def count(self):
        return self.seen
"""

# Ends once the file `go` exists, so that a test can act on the run before.
PLAY = """
import os, random, time
from pathlib import Path
from tasks.solver import remote

@remote
def add(): pass
@remote
def store(): pass
@remote
def count(): pass

go, ranks, n = Path(__file__).with_name("go"), set(), 0
while not (go.exists() and n >= 20):
    answer = add(n, 1)
    if answer is None:
        time.sleep(0.05)
        continue
    assert answer[0] == n + 11, answer
    ranks.add(answer[1])
    store([n, answer])
    n += 1
    if n in (1, 20):
        print("played", n, flush=True)
    time.sleep(random.uniform(0, 0.02))  # two environments in step would each meet one worker alone
while count() < n:
    time.sleep(0.05)
print("env", os.environ["WARREN_RANK"], "of", os.environ["WARREN_NUM"], "answered by", sorted(ranks))
"""

FILE = """
services:
  - {name: Adder, path: services.py, num: 2, kwargs: {plus: 10}}
  - {name: Learner, path: services.py}
envs:
  - {name: play, path: play.py}
"""


HOSTLESS = FILE.replace("num: 2, ", "")  # the same with fewer processes


def write(folder: Path, text: str = FILE, name: str = "own.yaml") -> Path:
    """Write the files of a small run; return the path of the run file."""
    (folder / "services.py").write_text(SERVICES)
    (folder / "play.py").write_text(PLAY)
    (folder / name).write_text(text)
    return folder / name


class OwnRun(Launched):
    """A launcher; `output`: its output; `logged`: that of one of its processes, by the name of its log."""

    def __init__(self, file: Path, servers: Any, *arguments: str, label: str = "out") -> None:
        self.folder = file.parent / f"runs-{label}"
        urls = {"WARREN_BROKER_URL": servers.broker_url, "WARREN_REDIS_URL": servers.redis_url}
        arguments = (str(file), f"folder={self.folder}", *arguments)
        super().__init__(file.parent / f"{label}.log", "workers.run", *arguments, given=urls)

    def logged(self, process: str) -> str:
        """Return the output of one of its processes."""
        return "".join(path.read_text() for path in self.folder.glob(f"*/*/logs/{process}.log"))

    def processes(self, module: str = "workers.s") -> list[psutil.Process]:
        """Return the living processes of its services and environments."""
        return self.children(lambda line: "-m" in line[1:3] and line[line.index("-m") + 1].startswith(module))

    @property
    def name(self) -> str:
        """Return the run's name on the servers."""
        found: Any = self.until(lambda: re.search(r"run name +(\S+)", self.output))
        return str(found[1])
