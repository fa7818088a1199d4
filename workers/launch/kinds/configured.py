"""The part of a monitor that training runs and leagues share: both have one configuration for all roles."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tasks.topology import Topology
from workers.config import plain_checks
from workers.config.schema import Config
from workers.launch.kinds.account import write_account
from workers.launch.monitor import Context
from workers.runtime.actor_count import count_key
from workers.runtime.ended import open_run
from workers.runtime.session import Session

FLOWER_WITHIN = 600.0  # s of waiting for Flower
FLOWER_EVERY = 0.5  # s between attempts to connect


class ConfiguredMonitor:
    """The half of a monitor.Monitor that depends only on the configuration."""

    def __init__(self, config: Config, context: Context) -> None:
        self.config, self.context = config, context
        self.session = Session(config, context.broker_url, context.redis_url)

    @property
    def topology(self) -> Topology:
        return self.session.topology

    def begin(self) -> None:
        open_run(self.session)
        if self.config.flower_port is not None:
            threading.Thread(target=self._wait_for_flower, name="flower", daemon=True).start()

    def _wait_for_flower(self) -> None:
        """Print Flower's URL once it accepts connections, some 20 s after the start."""
        address, port = self.config.flower_address, self.config.flower_port
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
        deadline = time.monotonic() + FLOWER_WITHIN
        while time.monotonic() < deadline:
            try:
                socket.create_connection((here, port), timeout=1.0).close()
            except OSError:
                time.sleep(FLOWER_EVERY)
            else:
                self.context.say(f"Flower at http://{here if ':' not in here else f'[{here}]'}:{port}")
                return

    def check_counts(self, counts: Mapping[str, int]) -> Sequence[str]:
        """Return the problems that the new counts cause; others, such as a port that this run uses, are left out."""
        # Hosts name their own counts, which are not those of the whole run.
        config = replace(self.config, flower_port=None, hosts={}, host=None)
        known = [*plain_checks.problems(config, "train")]
        changed = replace(config, **cast(dict[str, Any], dict(counts)))
        return [problem for problem in plain_checks.problems(changed, "train") if problem not in known]

    def keep_counts(self, counts: Mapping[str, int]) -> None:
        for setting, count in counts.items():
            self.session.redis.set(count_key(self.session, setting), count)

    def account(self) -> None:
        write_account(self.session, self.topology, self.context)
