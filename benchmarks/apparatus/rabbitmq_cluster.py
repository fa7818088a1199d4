"""A RabbitMQ cluster of three private nodes on this machine, which can be killed and started again one by one."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from workers.servers.machine import RabbitMQBinaries
from workers.servers.ports import LOOPBACK, free_port
from workers.servers.private_rabbitmq import CONFIGURATION, GRACE, Node, _answers, _plugins, _write_files
from workers.servers.process import Child, private_folder

# A node also keeps in memory what its quorum queues wrote, until its log has so many bytes: 512 MiB by default.
LOG = "raft.wal_max_size_bytes = 16777216"
STARTS_WITHIN = 180.0  # s, with all three starting at a time on a busy machine


class Cluster:
    """Starts and joins its nodes when made; `url` names all nodes, with ";" between."""

    def __init__(self, binaries: RabbitMQBinaries, folder: Path, size: int = 3, address: str = LOOPBACK) -> None:
        """`address`: that of this machine to which clients connect; nodes connect on loopback."""
        password, cookie, epmd_port = secrets.token_hex(16), secrets.token_hex(16), free_port()
        self.nodes = [
            Node(str(folder / f"node-{index}"), f"n{index}-{secrets.token_hex(4)}@{LOOPBACK}", str(binaries.ctl),
                 epmd_port, binaries.path)
            for index in range(size)
        ]  # fmt: skip
        found_by = "\n".join(
            ["cluster_formation.peer_discovery_backend = classic_config"]
            + [f"cluster_formation.classic_config.nodes.{i} = {node.name}" for i, node in enumerate(self.nodes, 1)]
        )
        ports = [free_port() for _ in self.nodes]
        self.urls = [f"amqp://warren:{password}@{address}:{port}/%2F" for port in ports]
        self.url = ";".join(self.urls)
        self.epmd = Child(
            "epmd", [binaries.epmd, "-address", LOOPBACK, "-port", str(epmd_port)], folder / "epmd.log",
            env=self.nodes[0].environment(), grace=GRACE,
        )  # fmt: skip
        self.servers: list[Child] = []
        try:
            for node, port in zip(self.nodes, ports, strict=True):
                place = private_folder(Path(node.folder))
                listeners = f"listeners.tcp.1 = {address}:{port}"
                conf = CONFIGURATION.format(listeners=listeners, user="warren", password=password)
                _write_files(place, f"{conf}{LOG}\n{found_by}\n")
                shared = place / "home" / ".erlang.cookie"
                shared.unlink()
                shared.write_text(cookie)
                shared.chmod(0o400)
                environment = node.environment() | {
                    "RABBITMQ_DIST_PORT": str(free_port()),
                    "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the node
                    **_plugins(binaries, place),
                }
                self.servers.append(Child(node.name, [binaries.server], place / "node.log", environment, GRACE))
            for index in range(size):
                self.wait_for(index)
            self.servers[0].wait_until(lambda: self.running(0) == {node.name for node in self.nodes}, STARTS_WITHIN)
        except BaseException:
            self.stop()
            raise

    def running(self, asked: int) -> set[str]:
        """Return the names of the running nodes, as node `asked` sees them."""
        done = self.nodes[asked].control(
            ["--quiet", "cluster_status", "--formatter", "json"], capture_output=True, text=True, timeout=120
        )
        return set(json.loads(done.stdout)["running_nodes"]) if done.returncode == 0 else set()

    def kill(self, index: int) -> None:
        """Kill the node, as if its machine were gone."""
        self.servers[index].kill()

    def start_again(self, index: int) -> None:
        """Start a killed node again, with what it held; return before it is ready."""
        self.servers[index].start_again()

    def wait_for(self, index: int) -> None:
        """Return once the node accepts logins. Raises BrokerError if it does not."""
        self.servers[index].wait_until(lambda: _answers(self.urls[index]), STARTS_WITHIN)

    def stop(self) -> None:
        for child in [*self.servers, self.epmd]:
            child.ask_to_stop()
        for child in [*self.servers, self.epmd]:
            child.stop()
