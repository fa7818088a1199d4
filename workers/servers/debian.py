"""RabbitMQ and Redis from the distribution's packages, on Debian, Ubuntu and their kin."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

from warren.errors import BrokerError
from workers.servers.machine import Machine

PACKAGES = {"RabbitMQ": "rabbitmq-server", "Redis": "redis-server"}
SCRIPT = """\
set -e
policy=$1; shift
trap 'exit 130' HUP INT TERM
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\\nexit 101\\n' >"$policy"; chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=120 -q update || echo 'apt-get update failed; trying with the lists at hand' >&2
apt-get -o DPkg::Lock::Timeout=120 -q install -y --no-install-recommends "$@"
"""


def missing(machine: Machine) -> list[str]:
    """Return those of "RabbitMQ" and "Redis" that have no binary on this machine."""
    return [name for name, found in (("RabbitMQ", machine.rabbitmq()), ("Redis", machine.redis())) if found is None]


def why_not(machine: Machine) -> str | None:
    """Return why nothing can be installed here, or None if it can."""
    if not machine.debian_family():
        return "this is not Debian or Ubuntu"
    if machine.root_prefix() is None:
        return "installing needs root, or sudo without a password"
    return None


def install(names: Sequence[str], machine: Machine, say: Callable[[str], object] = print) -> None:
    """Install the packages of `names` (keys of PACKAGES), the package manager's progress going to standard error.

    Of several that install on this machine, one does it, and the others wait and take what it has installed. No service
    is started, as a run starts its own. Raises BrokerError if it fails or is not possible.
    """
    if reason := why_not(machine):
        raise BrokerError(f"{' and '.join(names)} cannot be installed: {reason}")
    with _alone(machine, say):
        if lacking := [name for name in names if name in missing(machine)]:
            _install(lacking, machine, say)


@contextlib.contextmanager
def _alone(machine: Machine, say: Callable[[str], object]) -> Iterator[None]:
    """Hold the lock of this machine's installations, which is on a file that every user can read."""
    with machine.os_release.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for the installation that another process has begun")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(names: Sequence[str], machine: Machine, say: Callable[[str], object]) -> None:
    packages = [PACKAGES[name] for name in names]
    say(
        f"installing {' and '.join(packages)} with apt-get (their services are not started); "
        "to install nothing: Ctrl-C, and broker=embedded"
    )
    status = _run_to_end(
        [*(machine.root_prefix() or []), "sh", "-c", SCRIPT, "install-servers", str(machine.service_policy), *packages],
        {**os.environ, "PATH": machine.search_path},
    )
    if status != 0:
        raise BrokerError(f"apt-get install {' '.join(packages)} ended with status {status}; its output is above")
    if absent := [name for name in names if name in missing(machine)]:
        raise BrokerError(f"apt-get installed {' '.join(packages)}, yet {' and '.join(absent)} cannot be found")


def _run_to_end(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command and return its exit status; raise a Ctrl-C only once it has ended.

    `subprocess.run` would kill the script a quarter of a second after a Ctrl-C, while apt-get ignores the Ctrl-C and
    continues. Then the script's switch would stay, and this machine would never again start a service after an
    installation.
    """
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=2)
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return status
