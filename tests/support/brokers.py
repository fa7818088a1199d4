"""The servers of a test session, and rabbitmqctl for them.

They are private, unless the environment names others, such as RabbitMQ 4 in a container (`make test-rabbitmq4`):
WARREN_TEST_BROKER_URL and WARREN_TEST_REDIS_URL are their URLs, and WARREN_TEST_RABBITMQCTL is the command line of
their rabbitmqctl, such as "docker exec NAME rabbitmqctl".
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from workers import servers as finding
from workers.servers import Servers, record
from workers.servers.private_rabbitmq import Node

CONTROL_PATIENCE = 280.0  # s; on a machine with tenfold load rabbitmqctl takes two minutes to start
GIVEN = os.environ.get("WARREN_TEST_BROKER_URL")


def start(folder: Path) -> Servers:
    """Return the given servers; without any, start private ones."""
    if not GIVEN:
        return finding.acquire("private", folder=folder)
    return finding.acquire("external", GIVEN, os.environ["WARREN_TEST_REDIS_URL"], folder=folder)


def node(servers: Servers) -> Node | None:
    """Return the private node of `servers`; None if they were given."""
    known = record.read(servers.folder).node
    return None if known is None else Node(**known)


def control(servers: Servers, *arguments: str) -> list[str]:
    """Run rabbitmqctl with these arguments on the broker of `servers`; return the lines that it writes."""
    private = node(servers)
    if private is not None:
        done = private.control(["--quiet", *arguments], capture_output=True, text=True, timeout=CONTROL_PATIENCE)
    else:
        command = [*shlex.split(os.environ["WARREN_TEST_RABBITMQCTL"]), "--quiet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONTROL_PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stdout).splitlines()


def lacking(what: str) -> NoReturn:
    """End the test, failed in CI and skipped elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and CI must test with them", pytrace=False)
    pytest.skip(f"{what}; `python -m workers.servers install` may help")
