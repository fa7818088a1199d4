"""The processes of one deployment: each knows which of them has a session, and answers for the counts of all.

A process that is asked for /metrics asks the others, each at its own port.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from warren.environment import secret
from workers.gateway.limits import TOKEN
from workers.gateway.metrics import OWN, Snapshot
from workers.gateway.neighbours import Neighbours

PATIENCE = 2.0  # s within which another process has to answer with its counts


class Processes(Neighbours):
    """Neighbours of one deployment; `number`, which a replacement takes over, is a process's label in /metrics."""

    def __init__(self, client: Any, prefix: str, idle: float, number: int, address: str) -> None:
        """`address`: at which all of them listen."""
        super().__init__(client, prefix, idle)
        self.number, self._host = number, {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
        token = secret(TOKEN)
        self._shown = {} if token is None else {"token": token}
        self._ports = f"{prefix}ports"  # number -> its own port

    def enter(self, address: str) -> None:
        """Enter as in Neighbours, and tell the others the port of `address`. Raises redis.RedisError."""
        super().enter(address)
        self._redis.hset(self._ports, str(self.number), str(urlsplit(address).port))

    async def gather(self, own: Snapshot) -> Mapping[str, Snapshot | None]:
        """Return each process's counts by its number, as a Gather; this process's alone while Redis is away."""
        ports: dict[bytes, bytes] = await self._ask(lambda: self._redis.hgetall(self._ports)) or {}
        others = {int(number): int(port) for number, port in ports.items() if int(number) != self.number}
        loop = asyncio.get_running_loop()
        told = await asyncio.gather(*(loop.run_in_executor(None, self._of, port) for port in others.values()))
        counted = {self.number: own, **dict(zip(others, told, strict=True))}
        return {str(number): counted[number] for number in sorted(counted)}

    def _of(self, port: int) -> Snapshot | None:
        connection = http.client.HTTPConnection(self._host, port, timeout=PATIENCE)
        try:
            connection.request("GET", OWN, headers=self._shown)
            snapshot: Snapshot = json.loads(connection.getresponse().read())
            return snapshot
        except (OSError, http.client.HTTPException, ValueError):
            return None  # it died, and its replacement is not there yet
        finally:
            connection.close()
