"""A Redis with a replica and three sentinels on this machine, whose master can be killed."""

from __future__ import annotations

import secrets
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from warren import redis_client
from workers.servers.ports import LOOPBACK, free_port
from workers.servers.process import Child

SERVICE = "main"
DOWN_AFTER = 1000  # ms; a busy machine does not keep a Redis from answering for so long
STARTS_WITHIN = 60.0  # s


class Sentinels:
    """Starts master, replica and sentinels when made, on ports and with a password of their own.

    `url` names the sentinels; `ports` are the master's and the replica's. `address`: this machine's, for all of them.
    """

    def __init__(self, binary: Path, folder: Path, address: str = LOOPBACK) -> None:
        self._binary, self._folder, self._address = binary, folder, address
        self._password = secrets.token_hex(8)
        self.ports, watching = [free_port(), free_port()], [free_port() for _ in range(3)]
        self.children: list[Child] = []
        hosts = ",".join(f"{address}:{port}" for port in watching)
        self.url = f"sentinel://:{self._password}@{hosts}/{SERVICE}/0"
        common = (
            f"requirepass {self._password}", f"masterauth {self._password}", 'save ""', "repl-diskless-sync-delay 0",
        )  # fmt: skip
        try:
            self.master = self._start("master", f"port {self.ports[0]}", *common)
            following = f"replicaof {address} {self.ports[0]}"
            replica = self._start("replica", f"port {self.ports[1]}", *common, following)
            # Sentinels started before that would look for the replica again only after ten seconds.
            replica.wait_until(self._follows, STARTS_WITHIN)
            for number, port in enumerate(watching):
                self._start(
                    f"sentinel-{number}", f"port {port}",
                    f"sentinel monitor {SERVICE} {address} {self.ports[0]} 2",
                    f"sentinel auth-pass {SERVICE} {self._password}",
                    f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
                    f"sentinel failover-timeout {SERVICE} 5000", arguments=("--sentinel",),
                )  # fmt: skip
            self.children[-1].wait_until(lambda: all(self._sees_all(port) for port in watching), STARTS_WITHIN)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all that run."""
        for child in self.children:
            child.stop()

    def _start(self, name: str, *lines: str, arguments: tuple[str, ...] = ()) -> Child:
        conf = self._folder / f"{name}.conf"
        conf.write_text("\n".join((f"bind {self._address}", f'dir "{self._folder}"', *lines, "")))
        command = [self._binary, conf, *arguments]
        self.children.append(Child(name, command, self._folder / f"{name}.log", grace=0.0))
        return self.children[-1]

    def _follows(self) -> bool:
        url = f"redis://:{self._password}@{self._address}:{self.ports[1]}/0"
        with redis_client.connect(url, retry=Retry(NoBackoff(), 0)) as replica:
            try:
                return bool(replica.info("replication").get("master_link_status") == "up")
            except redis.RedisError:
                return False

    def _sees_all(self, port: int) -> bool:
        with redis_client.connect(f"redis://{self._address}:{port}/0", retry=Retry(NoBackoff(), 0)) as sentinel:
            try:
                known, replicas = sentinel.sentinel_masters()[SERVICE], sentinel.sentinel_slaves(SERVICE)
            except redis.RedisError:
                return False
        return known["num-other-sentinels"] == 2 and [one["master-link-status"] for one in replicas] == ["ok"]
