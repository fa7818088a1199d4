"""`python -m workers.flower`: the Flower dashboard of one run (its workers, tasks and queues) in a browser."""

from __future__ import annotations

import logging
import os

from warren.errors import ConfigurationError
from workers.config.command_line import role
from workers.config.schema import Config
from workers.config.validation import verify
from workers.runtime.connect import connect
from workers.runtime.session import Session, log_to_stderr

logger = logging.getLogger(__name__)

PORT = 5555
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_login(address: str) -> None:
    """Raises ConfigurationError for an address that others reach, without a login.

    In a container the address is that of the container; WARREN_FLOWER_PUBLISHED is where its port is published.
    """
    reached = os.environ.get("WARREN_FLOWER_PUBLISHED") or address
    if reached in LOOPBACK or os.environ.get("FLOWER_BASIC_AUTH"):
        return
    raise ConfigurationError(
        f"flower_address: at {reached} everybody who reaches this machine would see the run and could end its workers; "
        "set FLOWER_BASIC_AUTH=NAME:PASSWORD in the environment, or leave flower_address=127.0.0.1"
    )


def run(config: Config) -> int:
    """Serve until told to stop."""
    verify(config, role="flower")
    check_login(config.flower_address)
    log_to_stderr(config.log_level)
    session = Session(config, *connect(config))
    port = config.flower_port or PORT
    logger.info("Flower at http://%s:%d", config.flower_address, port)
    session.app.start(argv=["flower", f"--address={config.flower_address}", f"--port={port}", "--persistent=False"])
    return 0


if __name__ == "__main__":
    role("flower", run)()
