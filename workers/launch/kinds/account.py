"""The account of a run at its end: segments and steps made = learned + dropped, by the reason, + in flight.

As two lines of text, in segments.json, and within outcome.json.
"""

from __future__ import annotations

import json
import time
from typing import Any

from tasks.admin.cleanup import Depths
from tasks.topology import Topology
from workers.config.schema import Sampling
from workers.launch.folder import OUTCOME
from workers.launch.monitor import Context
from workers.runtime.segment_ledger import REASONS, Account
from workers.runtime.session import Session

SEGMENTS = "segments.json"
BACK_WITHIN = 5.0  # s within which a queue has what a process held that ended: the broker sees that a little later
LOOK_EVERY = 0.2  # s


def write_account(session: Session, topology: Topology, context: Context) -> None:
    """Once all processes of the run have ended, and while its queues are there. Raises redis.RedisError, OSError."""
    account = session.ledger.account()
    found = as_table(account, _waiting(session, topology, context, account.missing))
    context.folder.write(SEGMENTS, json.dumps(found) + "\n")
    if outcome := context.folder.read(OUTCOME):
        context.folder.write_last(OUTCOME, {**outcome, "segments": found}, context.say)
    for line in as_text(found, session.config.sampling):
        context.say(line)


def as_table(account: Account, left: int | None) -> dict[str, Any]:
    """Segments by what became of them, and in `steps` their steps. `left`: how many still wait in queues.

    in_flight = unsent + missing; missing = waiting + lost; confirmed = learned + dropped + missing. Where `left` is not
    known (None), neither are `waiting` and `lost`. `extra` wait in queues beyond what is missing: their sender died
    before it knew that they were taken, or they come again after a learner died.
    """
    counts = {"learned": account.learned, **account.dropped, "in_flight": account.in_flight}
    lost = None if left is None else max(0, account.missing - left)
    return {
        "made": account.made.segments,
        **{name: count.segments for name, count in counts.items()},
        "unsent": account.unsent,
        "confirmed": account.confirmed,
        "missing": account.missing,
        "waiting": None if lost is None else account.missing - lost,
        "lost": lost,
        "extra": None if left is None else max(0, left - account.missing),
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
        seen = f"{found['missing']:,} in queues or lost: the broker is away"
        if found["lost"] is not None:
            seen = f"{found['waiting']:,} in queues, {found['lost']:,} lost"
        lines[0] += f" ({found['unsent']:,} with actors, {seen})"
    if found["extra"]:
        lines[0] += f"; {found['extra']:,} more wait in queues than are missing"
    if found["repeated"]:
        lines[0] += f"; {found['repeated']:,} delivered again"
    return lines


def _waiting(session: Session, topology: Topology, context: Context, missing: int) -> int | None:
    """Segments in learners' queues, of `missing`; None where the broker is away.

    Gathered, those hold whole rounds, and what is not settled nobody has confirmed.
    """
    if session.config.sampling is Sampling.gathered or not missing:
        return 0
    if not context.watch.depths_now():
        return None
    depths = Depths(session.app, topology)  # the watch knows the queues that each run has; a league has one a player
    keys = [topology.learner_queue(player).routing_key for player in topology.players]
    until = time.monotonic() + BACK_WITHIN
    try:
        while True:
            found = depths.read()
            left = sum(found.get(key, 0) for key in keys)
            if left >= missing or time.monotonic() > until:
                return left if found else None
            time.sleep(LOOK_EVERY)
    finally:
        depths.close()
