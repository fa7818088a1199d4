"""A Docker Compose project that a scenario starts, watches and removes. All waits have a condition and a time limit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "warren:compose-test"  # its own name, so that no image in use is replaced
OWN = ("COMPOSE_", "WARREN_", "EXPERIMENT", "FLOWER_")  # the user's variables that would change the test
BESIDE = "compose-test.beside"  # label of containers that Compose did not start
FIGURES = re.compile(r"([\d,]+) steps, (?:.* )?weight version (\d+)")
ENGINE = 1.0  # s between queries, which load the engine
PATIENCE = float(os.environ.get("COMPOSE_TEST_PATIENCE", "1"))  # factor of the time limits
Found = TypeVar("Found")


class Failed(Exception):
    """An expectation of a step was not met."""


def expect(holds: bool, what: str) -> None:
    """Raise Failed unless `holds`."""
    if not holds:
        raise Failed(what)


def until(what: str, seconds: float, look: Callable[[], Found | None]) -> Found:
    """Call `look` about every second; return its first true value. Raises Failed after `seconds`."""
    seconds *= PATIENCE
    end, troubled = time.monotonic() + seconds, ""
    while True:
        try:
            if found := look():
                return found
            troubled = ""
        except (Failed, OSError, urllib.error.URLError) as error:  # the engine or the service may be down
            troubled = f"; at last: {error}"
        if time.monotonic() > end:
            raise Failed(f"after {seconds:.0f} s still not: {what}{troubled}")
        time.sleep(ENGINE)


def command(*words: str, timeout: float = 120.0, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command in the checkout; return (exit status, all it printed). Raises Failed at the time limit."""
    timeout *= PATIENCE
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=timeout, check=False, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Failed(f"`{' '.join(words)}` took longer than {timeout:.0f} s") from None
    return done.returncode, done.stdout


def docker(*words: str, timeout: float = 120.0) -> str:
    """Return what `docker WORDS` prints. Raises Failed unless it ends with status 0."""
    status, said = command("docker", *words, timeout=timeout)
    expect(status == 0, f"`docker {' '.join(words)}` ended with status {status}: {said[-2000:].strip()}")
    return said.strip()


class Project:
    """One project of the checkout's docker-compose.yml, with a name, volumes, networks and ports of its own."""

    def __init__(self, name: str, **variables: str) -> None:
        self.name = name
        kept = {key: value for key, value in os.environ.items() if not key.startswith(OWN)}
        servers = {key: os.environ[key] for key in ("RABBITMQ_IMAGE", "REDIS_IMAGE") if key in os.environ}
        own = {"COMPOSE_PROJECT_NAME": name, "WARREN_IMAGE": IMAGE, "WARREN_FLOWER_PORT": "0"}
        self.environment = {**kept, **servers, **own, **variables}

    def run(self, *words: str, timeout: float = 300.0) -> tuple[int, str]:
        """Run `docker compose WORDS`; return (exit status, all it printed)."""
        return command("docker", "compose", *words, timeout=timeout, environment=self.environment)

    def compose(self, *words: str, timeout: float = 300.0) -> str:
        """Return what `docker compose WORDS` prints. Raises Failed unless it ends with status 0."""
        status, said = self.run(*words, timeout=timeout)
        expect(status == 0, f"`docker compose {' '.join(words)}` ended with status {status}: {said[-2000:].strip()}")
        return said.strip()

    def up(self, *words: str) -> None:
        """Start the services that do not run yet, from the built image."""
        self.compose("up", "--detach", "--no-build", *words, timeout=600)

    def remove(self) -> None:
        """Remove its containers, networks and volumes, and the containers started beside it."""
        if beside := docker("ps", "--all", "--quiet", "--filter", f"label={BESIDE}={self.name}").split():
            docker("rm", "--force", *beside)
        self.run("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "30", timeout=300)
        if made := docker("volume", "ls", "--quiet", "--filter", f"name=^{self.name}_").split():
            docker("volume", "rm", *made)

    def run_beside(self, name: str, *words: str) -> str:
        """Start a container by `docker run WORDS`, which is removed with the project; return its name."""
        named = f"{self.name}-{name}"
        docker("run", "--detach", "--name", named, "--label", f"{BESIDE}={self.name}", *words)
        return named

    def services(self) -> list[str]:
        """Return the names of the services that have containers."""
        return sorted({one["Config"]["Labels"]["com.docker.compose.service"] for one in self.containers()})

    def containers(self, service: str = "") -> list[dict[str, Any]]:
        """Return what `docker inspect` tells of the containers, including those that have ended."""
        ids = self.compose("ps", "--all", "--quiet", *([service] if service else [])).split()
        return list(json.loads(docker("inspect", *ids))) if ids else []

    def container(self, service: str) -> dict[str, Any]:
        """Return what `docker inspect` tells of a service's container. Raises Failed unless there is exactly one."""
        found = self.containers(service)
        expect(len(found) == 1, f"{service} has {len(found)} containers")
        return found[0]

    def logs(self, service: str, since: str = "") -> str:
        """Return the logs of a service, from the time `since` on."""
        given = ["--since", since] if since else []
        return self.compose("logs", "--no-color", "--no-log-prefix", *given, service)

    def port(self, service: str, inside: int) -> str:
        """Return the address on this machine of a published port."""
        return f"http://{self.compose('port', service, str(inside))}"

    def version(self, learner: str = "learner", since: str = "") -> int:
        """Return the newest weight version in a learner's log; 0 if there is none."""
        told = FIGURES.findall(self.logs(learner, since))
        return int(told[-1][1]) if told else 0

    def runs_well(self, service: str) -> bool:
        """Return whether all containers of a service run, and are healthy if they have a health check."""
        states = [one["State"] for one in self.containers(service)]
        return bool(states) and all(
            state["Status"] == "running" and state.get("Health", {"Status": "healthy"})["Status"] == "healthy"
            for state in states
        )

    def learns_on(self, learner: str = "learner", seconds: float = 180.0) -> int:
        """Wait for an update that is logged from now on; return its weight version."""
        since = now()
        return until(f"{learner} learns", seconds, lambda: self.version(learner, since))

    def file(self, service: str, path: str) -> str:
        """Return the text of a file in a running container."""
        return self.compose("exec", "--no-TTY", service, "cat", path)


def now() -> str:
    """Return the time as `docker logs --since` reads it."""
    return f"{time.time():.3f}"


def get(address: str, **headers: str) -> tuple[int, str]:
    """Return the status and the body of a GET request."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode(errors="replace")


def kill(container: dict[str, Any]) -> None:
    """Kill a container's main process as a fault would; after `docker kill` the engine would not restart it."""
    script = f"import os; os.kill({container['State']['Pid']}, 9)"
    docker("run", "--rm", "--pid", "host", "--user", "root", "--network", "none", IMAGE, "python", "-c", script)
