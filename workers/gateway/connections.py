"""Connections: the bound on games that are connected at once, over HTTP and TCP together."""

from __future__ import annotations

import resource

from workers.gateway.protocol import Refusal

SPARE = 128  # open files that are left for everything else


class Connections:
    """Counts open connections, after raising the process's limit of open files to the number that they need."""

    def __init__(self, most: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = most + SPARE
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.most = most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - SPARE))
        self.open = self.refused = 0

    def enter(self) -> bool:
        """Count one more connection and return True, or return False if it is one too many."""
        if self.open >= self.most:
            self.refused += 1
            return False
        self.open += 1
        return True

    def leave(self) -> None:
        """Count one less of the connections that entered."""
        self.open -= 1

    def refusal(self) -> Refusal:
        """Return the answer to a connection that is one too many."""
        return Refusal(503, f"{self.most} connections are open, and no more may be; try again later")
