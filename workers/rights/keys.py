"""The rights of each role on Redis: the keys that it may read and write, behind those of its run, and the commands.

In a pattern `*` stands for any text. What a role needs beyond this ends its work with Redis's NOPERM, and
tests/integration/test_users_of_roles.py trains with all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasks.topology import Topology, key_prefix
from workers.config import roles

# No role lists or flushes a database, loads functions for others, or sees other clients. INFO tells the memory that is
# left. No role may find the claim of a message that it was not sent: SCAN and CLIENT TRACKING would tell its key.
OF_LAUNCHERS = "+@all -@admin -@dangerous +info +scan -client|tracking"
COMMANDS = f"{OF_LAUNCHERS} -scan -randomkey -dbsize -function -script|flush -script|kill -pubsub"

READ_BY_ALL = (
    *("settings*", "card", "facts*", "ending", "leader", "host*", "lease:*", "services", "delays", "event:*"),
    *("shared", "reader:*", "clocks", *roles.counts()),
)
# Leases are found by their index; messages over 1 MiB, results, and how often a call was begun.
WRITTEN_BY_ALL = ("leases", "events", "claim*", "begun:*", "probe", "celery-task-meta-*", "celery-taskset-meta-*")
# Keys of the league: returns and cells, and beside its state looks, shares and the score. A script names the league
# itself, "", where it has no data; each further key that it touches is checked.
OF_EVALUATORS = tuple(
    f"league:{key}" for key in ("", "returns", "returns:*", "cell:*", "looks", "looks:*", "earned", "score")
)
OF_ACTORS = ("lease:actor-*", "lease:gateway-*", "ledger:*", "pool:", "pool:used", "pool:wanted", "replays")


@dataclass(frozen=True)
class KeyRights:
    """Patterns of keys, behind the run's prefix: those that a role reads and writes, and those that it reads."""

    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    commands: str = COMMANDS
    shared: bool = True  # it has the keys of all roles, too

    def rules(self, run: str) -> list[str]:
        """Return Redis's ACL rules, but for the password, for `run`.

        There are none for every run: with `*` for its name, the keys of a run's processes would fit the league's.
        """
        if not self.shared:
            return self.commands.split()
        prefix = key_prefix(Topology(run).run)
        closed = f"closed-{prefix}"  # says that a run has ended, when all below its prefix is gone
        writes = [f"~{prefix}{name}" for name in (*self.writes, *WRITTEN_BY_ALL)]
        reads = [f"%R~{prefix}{name}" for name in (*self.reads, *READ_BY_ALL)]
        ending = f"~{closed}" if self in (TABLE["launcher"], TABLE["learner"], TABLE["league"]) else f"%R~{closed}"
        return [*writes, *reads, ending, f"&{prefix}*", *self.commands.split()]


TABLE = {
    "actor": KeyRights((*OF_ACTORS, "gateway:*"), ("pool:*", "league:*")),
    "inference": KeyRights((*OF_ACTORS, "services", "groups*"), ("pool:*", "league:*")),
    "env": KeyRights(("lease:env-*",), ("pool:*", "league:*")),
    "learner": KeyRights(
        (
            *("lease:learner*", "ledger:*", "pool:*", "turns", "ranks:*", "ending", "facts*", "settings*"),
            *("shared", "reader:*", "event:*"),
        ),
        ("league:*",),
    ),
    "league": KeyRights(("lease:league-*", "league:*", "pool:*", "replays", "services", "settings"), ("ledger:*",)),
    "evaluator": KeyRights(
        ("lease:evaluator-*", *OF_EVALUATORS, "pool:", "pool:used", "pool:wanted", "replays"),
        ("*",),
    ),
    "watcher": KeyRights(("lease:flower*",), ("*",)),
    "launcher": KeyRights(("*",), commands=OF_LAUNCHERS),
    "scaler": KeyRights(shared=False, commands=f"{COMMANDS} -@all"),
}
