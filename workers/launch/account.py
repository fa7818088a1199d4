"""The account of a run at its end: segments and steps made = learned + dropped, by the reason, + in flight.

As two lines of text, in segments.json, and within outcome.json.
"""

from __future__ import annotations

import json
from typing import Any

from tasks.admin.cleanup import Depths
from tasks.topology import Topology
from workers.config.schema import Sampling
from workers.launch.folder import OUTCOME
from workers.launch.monitor import Context
from workers.runtime.segment_ledger import REASONS, Account
from workers.runtime.session import Session

SEGMENTS = "segments.json"


def write_account(session: Session, topology: Topology, context: Context) -> None:
    """Once all processes of the run have ended, and while its queues are there. Raises redis.RedisError, OSError."""
    account = session.ledger.account()
    found = as_table(account, _waiting(session, topology, context))
    context.folder.write(SEGMENTS, json.dumps(found) + "\n")
    if outcome := context.folder.read(OUTCOME):
        context.folder.write_last(OUTCOME, {**outcome, "segments": found}, context.say)
    for line in as_text(found, session.config.sampling):
        context.say(line)


def as_table(account: Account, left: int) -> dict[str, Any]:
    """Segments by what became of them, and in `steps` their steps. `left`: how many still wait in queues.

    in_flight = unsent + missing; missing = waiting + lost; confirmed = learned + dropped + missing.
    """
    counts = {"learned": account.learned, **account.dropped, "in_flight": account.in_flight}
    lost = max(0, account.missing - left)
    return {
        "made": account.made.segments,
        **{name: count.segments for name, count in counts.items()},
        "unsent": account.unsent,
        "confirmed": account.confirmed,
        "missing": account.missing,
        "waiting": account.missing - lost,
        "lost": lost,
        "repeated": account.repeated,
        "steps": {"made": account.made.steps, **{name: count.steps for name, count in counts.items()}},
    }


def as_text(found: dict[str, Any], sampling: Sampling) -> list[str]:
    """The sum of the segments, and that of their steps; what there is none of is left out. `found`: as a table."""
    lines = []
    for what, numbers in (("segments", found), ("steps", found["steps"])):
        dropped = [f"{numbers[name]:,} {why}" for name, why in REASONS.items() if numbers[name]]
        parts = [f"{numbers['learned']:,} learned", *dropped, f"{numbers['in_flight']:,} in flight"]
        lines.append(f"{what}: {numbers['made']:,} made = {' + '.join(parts)}")
    if sampling is not Sampling.gathered:
        lines[0] += f" ({found['unsent']:,} with actors, {found['waiting']:,} in queues, {found['lost']:,} lost)"
    if found["repeated"]:
        lines[0] += f"; {found['repeated']:,} delivered again"
    return lines


def _waiting(session: Session, topology: Topology, context: Context) -> int:
    """Segments in learners' queues; gathered, those hold whole rounds, and what is not settled nobody has confirmed."""
    if session.config.sampling is Sampling.gathered:
        return 0
    # The watch knows the queues that each run has; a league has one a player.
    depths = Depths(session.app, topology).read() if context.watch.depths_now() else {}
    return sum(depths.get(topology.learner_queue(player).routing_key, 0) for player in topology.players)
