"""`python -m workers.gateway.fakes.actor`: a gateway that answers the same to every request, for a game's own tests."""

from __future__ import annotations

import argparse
import sys

import numpy as np
from gymnasium.spaces import Box, Discrete

from workers.config.command_line import guarded
from workers.gateway.actor import Actor
from workers.gateway.fakes.arguments import given, of_server
from workers.gateway.fakes.serving import serve_until_told_to_stop


class FakeActor(Actor):
    """Reads nothing, decides nothing."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, start: bytes = b"", tick: bytes = b"fake", end: bytes = b"") -> None:
        self._replies = start, tick, end

    async def start(self, body: bytes) -> bytes:
        return self._replies[0]

    async def tick(self, body: bytes) -> bytes:
        return self._replies[1]

    async def end(self, body: bytes) -> bytes:
        return self._replies[2]


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.gateway.fakes.actor", description=__doc__)
    of_server(parser)
    for kind, reply in (("start", ""), ("tick", "fake"), ("end", "")):
        parser.add_argument(f"--{kind}", default=reply, help="the reply to it; @FILE: what the file holds")
    options = parser.parse_args()

    def run() -> int:
        replies = {kind: given(f"--{kind}", getattr(options, kind)) for kind in ("start", "tick", "end")}
        return serve_until_told_to_stop(FakeActor, options, replies)

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
