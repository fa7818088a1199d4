"""The dead letters of a live run, which are read and put back."""

from __future__ import annotations

from itertools import islice
from typing import Any

from tasks import brokers
from tasks.admin.dead_letters import NONE_KEPT, DeadLetters
from tasks.app import create_app
from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.dashboard.catalogue import Run
from workers.servers import record

MOST = 200  # letters that are listed


def dead_letters(run: Run) -> dict[str, Any]:
    """Return the number of dead letters and the first ones; if unknown, `count` is None and `said` says why.

    Raises BrokerError if the broker is away.
    """
    try:
        found = record.read(run.folder)
    except ConfigurationError:
        return {"count": None, "letters": [], "said": "the run has ended, and its broker's queues with it"}
    topology = Topology(record.name_of(run.folder) or "")
    app = create_app(topology, found.broker_url, found.redis_url)
    if not brokers.of(app).dead_letters:
        return {"count": None, "letters": [], "said": NONE_KEPT}
    with DeadLetters(app, topology) as letters:
        count = letters.count()
        listed = [one.as_dict() for one in islice(letters.each(), MOST)] if count else []
    return {"count": count or 0, "letters": listed, "said": ""}
