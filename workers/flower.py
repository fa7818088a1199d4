"""`python -m workers.flower`: the Flower dashboard of one run (its workers, tasks and queues) in a browser."""

from __future__ import annotations

import logging

from warren.errors import ConfigurationError
from workers.config import roles
from workers.config.command_line import role
from workers.config.flower_login import missing_login
from workers.config.schema import Config
from workers.runtime.role import enter

logger = logging.getLogger(__name__)

PORT = 5555


def run(config: Config) -> int:
    """Serve until told to stop."""
    if problem := missing_login(config.flower_address):
        raise ConfigurationError(problem)
    session = enter(config, roles.FLOWER)
    from workers.ui.flower_queues import ask_by_amqp  # imports Flower, so only after the settings were checked

    ask_by_amqp(session.app)
    port = config.flower_port or PORT
    logger.info("Flower at http://%s:%d", config.flower_address, port)
    session.app.start(argv=["flower", f"--address={config.flower_address}", f"--port={port}", "--persistent=False"])
    return 0


if __name__ == "__main__":
    role("flower", run)()
