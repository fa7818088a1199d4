"""Test of a role's wait for exchanges and queues that its user may not declare."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from amqp.exceptions import NotFound

from tasks.brokers.declaring import declare


def test_a_role_waits_until_others_have_declared_or_it_is_stopped() -> None:
    looks, stops = [], iter([False, True])

    def entity(channel: object) -> SimpleNamespace:
        def declare() -> None:
            looks.append(channel)
            raise NotFound("no exchange")

        return SimpleNamespace(declare=declare)

    entity.name = "warren.run.event"  # type: ignore[attr-defined]
    connection = SimpleNamespace(channel=contextlib.nullcontext)
    assert not declare(connection, entity, lambda _: next(stops)) and len(looks) == 2
