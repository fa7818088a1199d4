"""A private RabbitMQ: one node of the current user, loopback only, with its own epmd and its files under a folder.

The machine's own RabbitMQ is neither read nor changed. Every process ends with the run, epmd too: it runs in the
foreground as our child on its own port. Erlang would otherwise leave it behind as a daemon on port 4369. All settings
are
known to RabbitMQ 3.9 to 4.x, and none is deprecated in 4.x.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warren.errors import BrokerError
from workers.servers.checks import check_broker
from workers.servers.exposure import USER, OpenAddress
from workers.servers.machine import RabbitMQBinaries
from workers.servers.ports import LOOPBACK, free_port
from workers.servers.process import Child, Starting, private_folder, write_secret

READY_TIMEOUT = 90.0  # seconds; about 6 on two idle cores, several times that on busy ones
GRACE = 0.1  # seconds between SIGTERM and SIGKILL; it would take one or two to close tables that are removed anyway
VHOST = "%2F"
QUOTES = "'\"`"  # RabbitMQ hangs if its folder has one: it lets a shell run `df FOLDER`, unquoted

CONFIGURATION = """\
{listeners}
default_user = {user}
default_pass = {password}
log.console = false
log.file = rabbit.log
log.file.level = info
log.connection.level = warning
log.file.rotation.size = 10485760
log.file.rotation.count = 2
"""

# Busy waiting makes a lone broker faster by microseconds, and on a machine whose cores are busy with learning it takes
# whole scheduler slices from it. Binding schedulers to cores ("db", the default) is switched off for the same reason.
ERLANG_FLAGS = "+sbwt none +sbwtdcpu none +sbwtdio none -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"


@dataclass(frozen=True)
class Node:
    """The facts by which another process can control a private node; kept in the run's record."""

    folder: str
    name: str
    ctl: str
    epmd_port: int
    path: str

    def environment(self) -> dict[str, str]:
        """Return the environment of the node and of rabbitmqctl, without settings of the machine's own RabbitMQ."""
        folder = Path(self.folder)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RABBITMQ_", "ERL_", "WARREN_")) and name not in ("NOTIFY_SOCKET", "ERLANG_HOME")
        }
        return kept | {
            "PATH": self.path,
            "HOME": str(folder / "home"),  # Erlang looks for the cookie here
            "LC_ALL": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8",  # rabbitmqctl warns about any other
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_USE_LONGNAME": "true",  # NAME@127.0.0.1 needs no name service
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONFIG_FILES": str(folder / "conf.d" / "*.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_FLAGS,
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",
            "RABBITMQ_CTL_ERL_ARGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def control(self, arguments: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run rabbitmqctl with `arguments` against this node; `options` are those of `subprocess.run`."""
        return subprocess.run(
            [self.ctl, "--longnames", "--node", self.name, *arguments], env=self.environment(), check=False, **options
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for the run's record; they hold no secret."""
        return asdict(self)


class PrivateRabbitMQ:
    """A node that was started, and serves once it is ready; `url` holds its password, which is on no command line."""

    version = "RabbitMQ"  # its own name and version, once it is ready

    def __init__(self, node: Node, epmd: Child, server: Child, url: str, port: int) -> None:
        self.node, self.epmd, self.server, self.url, self.port = node, epmd, server, url, port

    @property
    def children(self) -> list[Child]:
        """Return both processes, the node first."""
        return [self.server, self.epmd]

    def wait_until_ready(self) -> None:
        """Wait until an AMQP login works. Raises BrokerError, with the last lines of the log."""
        self.server.wait_until(lambda: _answers(self.url), READY_TIMEOUT)
        # If its port is taken, epmd ends with status 0, and the node uses the other epmd, which is not ours.
        if not self.epmd.alive:
            raise BrokerError(f"port {self.node.epmd_port} in use: {self.epmd.death()}")
        self.version = check_broker(self.url)

    def stop(self) -> None:
        """Stop both processes and discard their data."""
        for child in self.children:
            child.ask_to_stop()
        for child in self.children:
            child.stop()
        self.discard()

    def discard(self) -> None:
        """Remove a stopped node's tables, which belong only to this run; keep the logs."""
        shutil.rmtree(Path(self.node.folder) / "data", ignore_errors=True)

    @classmethod
    def start(
        cls, binaries: RabbitMQBinaries, folder: Path, *, port: int | None = None, open_at: OpenAddress | None = None
    ) -> PrivateRabbitMQ:
        """Start a node and wait until it is ready. Raises BrokerError, with the last lines of the log."""
        return cls.begin(binaries, folder, port=port, open_at=open_at).finish()

    @classmethod
    def begin(
        cls, binaries: RabbitMQBinaries, folder: Path, *, port: int | None = None, open_at: OpenAddress | None = None
    ) -> Starting[PrivateRabbitMQ]:
        """Begin to start a new, empty node. `open_at`: an address for other machines.

        Raises ConfigurationError if the given `port` is taken.
        """
        return Starting(
            lambda at: cls._begin(binaries, private_folder(folder.resolve()), at, open_at), port, "RabbitMQ"
        )

    @classmethod
    def _begin(
        cls, binaries: RabbitMQBinaries, folder: Path, port: int, open_at: OpenAddress | None
    ) -> PrivateRabbitMQ:
        user, password = f"warren-{secrets.token_hex(4)}", secrets.token_hex(24)
        addresses: tuple[str, ...] = (LOOPBACK,)
        if open_at is not None:
            user, password, addresses = USER, open_at.password, open_at.addresses
        listeners = "\n".join(f"listeners.tcp.{index} = {address}:{port}" for index, address in enumerate(addresses, 1))
        url = f"amqp://{user}:{password}@{LOOPBACK}:{port}/{VHOST}"
        name = f"warren-{secrets.token_hex(6)}@{LOOPBACK}"
        node = Node(str(folder), name, str(binaries.ctl), free_port(), binaries.path)
        _write_files(folder, CONFIGURATION.format(listeners=listeners, user=user, password=password))
        environment = node.environment() | {
            "RABBITMQ_DIST_PORT": str(free_port()),
            # Lets the script become the node instead of its parent, so that signals and exit status are the
            # node's. (NOTIFY_SOCKET, by which RabbitMQ detects systemd, stays unset.)
            "RUNNING_UNDER_SYSTEMD": "true",
            **_plugins(binaries, folder),
        }
        epmd = Child(
            "private epmd",
            [binaries.epmd, "-address", LOOPBACK, "-port", str(node.epmd_port)],
            folder / "epmd.log",
            env=environment,
            grace=1.0,
        )
        try:
            server = Child("private RabbitMQ", [binaries.server], folder / "rabbitmq.log", environment, GRACE)
        except BaseException:
            epmd.stop()
            raise
        return cls(node, epmd, server, url, port)


def refusal(folder: Path) -> str | None:
    """Return the reason why RabbitMQ would hang in `folder`, or None if it would not."""
    place = folder.resolve()
    if quotes := [one for one in QUOTES if one in str(place)]:
        return f"RabbitMQ cannot run in {place}, whose path has a {quotes[0]}; give a folder without quotes"
    try:
        os.fsencode(place).decode()
    except UnicodeDecodeError:  # Erlang's code server crashes
        return f"RabbitMQ cannot run in {place}, whose path is not in UTF-8; give a folder with another name"
    return None


def _write_files(folder: Path, configuration: str) -> None:
    shutil.rmtree(folder / "data", ignore_errors=True)  # from an earlier attempt, with another node name
    for name in ("home", "data", "log"):
        private_folder(folder / name)
    cookie = folder / "home" / ".erlang.cookie"
    write_secret(cookie, secrets.token_hex(16))
    cookie.chmod(0o400)  # Erlang refuses a cookie that others can read
    write_secret(folder / "rabbitmq.conf", configuration)
    (folder / "enabled_plugins").write_text("[].\n", encoding="utf-8")
    (folder / "rabbitmq-env.conf").write_text("", encoding="utf-8")


def _plugins(binaries: RabbitMQBinaries, folder: Path) -> dict[str, str]:
    """Return the variable that names a folder with only the applications of RabbitMQ itself.

    Erlang searches every plugin's folder for each of a thousand modules: with all of the distribution's plugins that is
    a fifth of the start. Empty where plugins are not laid out as folders.
    """
    everything = binaries.server.parent.parent / "plugins"
    found = {path.name.rpartition("-")[0]: path for path in everything.glob("*-*") if (path / "ebin").is_dir()}
    needed, names = {}, ["rabbit"]
    while names:
        name = names.pop()
        if name in found and name not in needed:
            needed[name] = found[name]
            described = (found[name] / "ebin" / f"{name}.app").read_text(encoding="utf-8")
            listed = re.search(r"\{applications,\s*\[(.*?)\]", described, re.DOTALL)
            names += re.findall(r"\w+", listed[1]) if listed else []
    if "rabbit" not in needed:
        return {}
    links = private_folder(folder / "plugins")
    for path in needed.values():
        link = links / path.name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    return {"RABBITMQ_PLUGINS_DIR": str(links)}


def _answers(url: str) -> bool:
    try:
        check_broker(url, timeout=5.0)
    except BrokerError:
        return False
    return True
