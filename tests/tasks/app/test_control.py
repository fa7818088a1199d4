"""Tests of remote control at a worker: messages that it obeys, ignores and refuses."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from amqp.exceptions import NotFound
from celery.exceptions import WorkerShutdown
from celery.worker import state as worker_state

from tasks.app import create_app
from tasks.topology import Topology


def said(caplog: pytest.LogCaptureFixture, **body: Any) -> list[str]:
    """Give a message to node `actor-0`, which only knows `ping`; return "pinged" if it obeys, and its log lines."""
    done: list[str] = []
    app = create_app(Topology("run"), "memory://", "redis://127.0.0.1:1/0")
    node = app.control.mailbox.Node("actor-0", handlers={"ping": lambda state: done.append("pinged")})
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        node.handle_message(body)
    return [*done, *(record.getMessage() for record in caplog.records)]


def test_a_command_is_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, method="ping") == said(caplog, method="ping", destination=["actor-0"]) == ["pinged"]


@pytest.mark.parametrize("destination", [None, ["launcher"], ["launcher", "learner"]])
def test_a_command_for_other_nodes_is_ignored_silently(
    caplog: pytest.LogCaptureFixture, destination: list[str] | None
) -> None:
    assert said(caplog, method="scale", destination=destination) == []


def test_an_unknown_command_for_this_node_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = said(caplog, method="scale", destination=["actor-0"])
    assert line == "a message of remote control is refused: there is no command 'scale'"


def test_a_message_that_is_not_a_command_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, method=3) == ["a message of remote control is refused: it names no method"]
    (line,) = said(caplog, method="scale", destination=7)
    assert line.endswith("its destination is not a list of workers")


def test_a_worker_that_waits_for_the_exchanges_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_state, "should_stop", 0)

    def refuse() -> None:
        raise NotFound("no exchange")

    channel = SimpleNamespace(connection=SimpleNamespace(client=SimpleNamespace(channel=refuse)))
    mailbox = create_app(Topology("run"), "memory://", "redis://127.0.0.1:1/0").control.mailbox
    with pytest.raises(WorkerShutdown):
        mailbox.Node("actor-0", channel=channel).listen()
