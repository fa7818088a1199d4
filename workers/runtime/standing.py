"""The standing of a process in its run: its number within its role, and the lease of that number."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import redis
from celery.utils.log import get_logger

from warren.errors import ConfigurationError
from workers.config.roles import Keeps, Role
from workers.config.schema import Config
from workers.runtime.lease import Lease, leader_key
from workers.runtime.session import Session

logger = get_logger(__name__)

# First number of roles started by hand beside a launcher, which numbers its own from 0 and may start more.
BY_HAND = 1000
AGAIN_AFTER = 1.0  # s until Redis is asked again


@contextmanager
def standing(session: Session, role: Role, stopping: threading.Event | None = None) -> Iterator[Config]:
    """Hold the lease of this process of a role; yield the configuration with its number.

    Without a given number it takes the next free one; if number 0 of the role keeps the run's folder and there is no
    launcher, it first waits to see whether number 0 is alive. A process stops if it is silent for so long that another
    takes its number. `stopping` ends the wait. Raises ConfigurationError for a number that another process has, and
    WarrenError at the end if another process has taken it meanwhile.
    """
    assert role.id is not None
    stopping = stopping or threading.Event()
    given = getattr(session.config, role.id)
    if given is None:
        number, lease = _next_free(session, role, stopping)
        logger.info("this is %s-%d of run %s", role.name, number, session.config.run)
    else:
        number, lease = given, session.lease(f"{role.name}-{given}")
        lease.take(stopping, f"leave {role.id} out, and this one gets the next that is free")
    numbered: dict[str, Any] = {role.id: number}
    with lease.kept():
        yield replace(session.config, **numbered)


def _next_free(session: Session, role: Role, stopping: threading.Event) -> tuple[int, Lease]:
    """Return a number of the role that no other process has, and its lease, waiting while Redis is away.

    If `stopping` is set meanwhile, return 0 and its lease, which is not taken.
    """
    keeps = role.keeps is not Keeps.nobody
    while True:
        try:
            first = BY_HAND if session.leases.exists(leader_key(session.topology.key_prefix)) else 0
            keeper = session.lease(f"{role.name}-0")
            if keeps and not first and not keeper.held_here():
                with suppress(ConfigurationError):  # number 0 is alive
                    keeper.take(stopping)
                    return 0, keeper
            for number in itertools.count(max(first, int(keeps))):
                lease = session.lease(f"{role.name}-{number}")
                if not lease.try_to_take():
                    return number, lease
        except redis.RedisError as error:
            logger.warning("waiting for Redis: %s", error)
        if stopping.wait(AGAIN_AFTER):
            return 0, session.lease(f"{role.name}-0")
