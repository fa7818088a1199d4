"""The account of a run at its end: segments and steps made = learned + stored + dropped, by reason, + in flight.

It is printed in two lines and stored in segments.json and outcome.json.
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
BACK_WITHIN = 5.0  # s for messages of an ended process to return to their queue: the broker notices its end late
LOOK_EVERY = 0.2  # s


def write_account(session: Session, topology: Topology, context: Context) -> None:
    """Write and print the account; call it when all processes have ended, while the queues exist.

    Raises redis.RedisError, OSError.
    """
    account = session.ledger.account()
    found = as_table(account, _waiting(session, topology, context, account.missing))
    context.folder.write(SEGMENTS, json.dumps(found) + "\n")
    if outcome := context.folder.read(OUTCOME):
        context.folder.write_last(OUTCOME, {**outcome, "segments": found}, context.say)
    for line in as_text(found, session.config.sampling):
        context.say(line)


def as_table(account: Account, left: int | None) -> dict[str, Any]:
    """Return the numbers of segments by their fate, and in `steps` those of steps. `left`: segments still in queues.

    in_flight = unsent + missing; missing = waiting + lost; confirmed = learned + stored + dropped + missing. If `left`
    is unknown (None), `waiting` and `lost` are, too. `extra`: segments in queues beyond the missing ones; their sender
    died before it knew that they were accepted, or they were redelivered after a learner died. `not_kept`: stored
    segments whose replay ended with its learner.
    """
    counts = {"learned": account.learned, "stored": account.stored, **account.dropped, "in_flight": account.in_flight}
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
        "not_kept": account.not_kept.segments,
        "steps": {
            "made": account.made.steps,
            **{name: count.steps for name, count in counts.items()},
            "not_kept": account.not_kept.steps,
        },
    }


def as_text(found: dict[str, Any], sampling: Sampling) -> list[str]:
    """Return the account as two lines, of segments and of steps, without zeros. `found`: the result of `as_table`."""
    lines = []
    for what, numbers in (("segments", found), ("steps", found["steps"])):
        dropped = [f"{numbers[name]:,} {why}" for name, why in REASONS.items() if numbers[name]]
        used = [f"{numbers[name]:,} {name}" for name in ("learned", "stored") if numbers[name]] or ["0 learned"]
        parts = [*used, *dropped, f"{numbers['in_flight']:,} in flight"]
        lines.append(f"{what}: {numbers['made']:,} made = {' + '.join(parts)}")
        if numbers["not_kept"]:
            lines[-1] += f"; {numbers['not_kept']:,} stored in a replay that ended with its learner"
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
    """Return how many of the `missing` segments are in learners' queues; None if the broker is away.

    With sampling=gathered it is 0: the queues hold whole rounds, whose segments are confirmed only when settled.
    """
    if session.config.sampling is Sampling.gathered or not missing:
        return 0
    if not context.watch.depths_now():
        return None
    depths = Depths(session.app, topology)  # the watch knows the queues of every run; a league has one per player
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
