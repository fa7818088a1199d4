"""The rights of each role on Redis: the keys that it may read and write, behind those of its run, and the commands.

In a pattern `*` stands for any text. A role that needs more than this fails with Redis's NOPERM;
tests/integration/test_users_of_roles.py trains with all roles.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasks.topology import Topology, key_prefix
from workers.config import roles

# No role lists or flushes a database, loads functions for others, or sees other clients. INFO is needed for the memory
# that is left. No role may find the claim of a message that was sent to another: SCAN and CLIENT TRACKING would tell
# its key.
OF_LAUNCHERS = "+@all -@admin -@dangerous +info +scan -client|tracking"
COMMANDS = f"{OF_LAUNCHERS} -scan -randomkey -dbsize -function -script|flush -script|kill -pubsub"

READ_BY_ALL = (
    *("settings*", "card", "facts*", "ending", "leader", "host*", "lease:*", "services", "delays", "event:*"),
    *("shared", "reader:*", "clocks", *roles.counts()),
)
# The index of leases; events; messages over 1 MiB (claims); how often a call was begun; results.
WRITTEN_BY_ALL = ("leases", "events", "claim*", "begun:*", "probe", "celery-task-meta-*", "celery-taskset-meta-*")
# Keys of the league: returns and cells, and beside its state looks, shares and the score. A script without data names
# the league itself, ""; each further key that it touches is checked.
OF_EVALUATORS = tuple(
    f"league:{key}" for key in ("", "returns", "returns:*", "cell:*", "looks", "looks:*", "earned", "score")
)
OF_ACTORS = ("lease:actor-*", "lease:gateway-*", "ledger:*", "pool:", "pool:used", "pool:wanted", "replays")


@dataclass(frozen=True)
class KeyRights:
    """Patterns of keys, behind the run's prefix: those that a role reads and writes, and those that it only reads."""

    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    commands: str = COMMANDS
    shared: bool = True  # it may use the keys of all roles, too

    def rules(self, run: str) -> list[str]:
        """Return Redis's ACL rules for `run`, without the password.

        No rules can serve every run: with `*` for a run's name, the patterns of its processes would match the league's.
        """
        if not self.shared:
            return self.commands.split()
        prefix = key_prefix(Topology(run).run)
        closed = f"closed-{prefix}"  # says that a run has ended, when all keys below its prefix are gone
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
