"""Tests of logs of exceptions in a user's service: a line with service, error and place, and one traceback."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from celery.exceptions import Reject
from support.serving_in_memory import InMemoryServing, until

from tasks.admin.discovery import _served, failures
from tasks.app.outcome import Failed, failed, outcome_of
from tasks.service import Worker, service
from tasks.worker import failures as module
from tasks.worker.failures import Failures
from warren.errors import DeliveriesExceeded, MatchmakingError, PlayerUnavailable

HERE = __file__


class Chess(Worker):
    @service
    def move(self, square: str) -> None:
        raise ValueError(f"no such move\n{square}")

    @service
    def parse(self, text: str) -> Any:
        return json.loads(text)

    @service(response=False, batch=4)
    def store(self, games: list[Any]) -> list[Any]:
        raise KeyError(games[0])


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Any:
    serving = InMemoryServing(monkeypatch, Chess())
    serving.start()
    yield serving
    serving.loop.stop(10.0)


@pytest.fixture(autouse=True)
def told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make later lines due only after an hour, however slow a test is."""
    monkeypatch.setattr(module, "LOG_EVERY", 3600.0)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == module.__name__]


def test_one_line_names_service_exception_and_place_above_the_traceback(
    serving: InMemoryServing, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        serving.answer(serving.send("chess.move", "e9"))
    (told,) = lines(caplog)
    first, *rest = told.splitlines()
    assert first.startswith(f"chess.move failed with ValueError: no such move e9 ({HERE}:")
    assert rest[0] == "Traceback (most recent call last):" and rest[-1] == "e9"


def test_an_exception_in_a_library_is_logged_with_the_line_that_called_it(serving: InMemoryServing) -> None:
    serving.answer(serving.send("chess.parse", "{"))
    error = serving.loop.status()["services"]["chess.parse"]["error"]
    assert error.startswith("json.decoder.JSONDecodeError: ") and f"({HERE}:" in error


def test_workers_status_names_the_log_with_the_traceback(serving: InMemoryServing) -> None:
    serving.answer(serving.send("chess.move", "e9"))
    status = {"host": "box", "pid": 1, **serving.loop.status()}
    found = [_served("Chess-0@box", status, name, counts) for name, counts in status["services"].items()]
    (said,) = failures(found)
    assert said.startswith(f"chess.move failed 1 times, last with ValueError: no such move e9 ({HERE}:")
    assert said.endswith("the full traceback is in logs/Chess-0.log of the run folder on box")


def test_a_failed_one_way_batch_is_logged_once(serving: InMemoryServing, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(8):
        serving.send("chess.store", "game", direct=False)
    serving.answer(serving.send("chess.parse", "1"))
    until(lambda: serving.count("chess.store", "failed") == 8)
    assert [line.splitlines()[0].partition(" (")[0] for line in lines(caplog)] == [
        "chess.store failed with KeyError: 'game'"
    ]


def boom(words: str) -> Failed:
    try:
        raise RuntimeError(words)
    except RuntimeError as error:
        return failed(error)


def test_failures_of_a_kind_are_counted_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Failures("a.b")
    noted.note([1, boom("x"), None])
    noted.note([boom("x")] * 3)
    monkeypatch.setattr(module, "LOG_EVERY", 0.0)
    noted.note([boom("x")])
    noted.note([boom("y")])
    firsts = [line.splitlines()[0].partition(" (")[0] for line in lines(caplog)]
    assert firsts == [
        "a.b failed with RuntimeError: x",
        "a.b failed 4 times more, last with RuntimeError: x",
        "a.b failed 1 times more, last with RuntimeError: y",
    ]


def test_failures_that_all_differ_take_bounded_memory(caplog: pytest.LogCaptureFixture) -> None:
    noted = Failures("a.b")
    noted.note([failed(type(f"Kind{number}", (Exception,), {})()) for number in range(5 * module.MOST_PLACES)])
    assert len(noted._seen) <= module.MOST_PLACES


def test_an_evicted_place_logs_its_count_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PLACES", 2)
    noted = Failures("a.b")
    noted.note([boom("x"), boom("x"), boom("x"), failed(KeyError("k")), failed(TypeError("t"))])
    firsts = [line.splitlines()[0].partition(" (")[0] for line in lines(caplog)]
    assert firsts == [
        "a.b failed with RuntimeError: x",
        "a.b failed with KeyError: 'k'",
        "a.b failed 2 times more, last with RuntimeError: x",
        "a.b failed with TypeError: t",
    ]


def test_a_call_that_killed_its_workers_is_not_logged_as_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    noted = Failures("a.b")
    noted.note([failed(DeliveriesExceeded("a.b", "delivered 3 times"))])
    assert noted.newest == "" and not lines(caplog)


def test_a_requeued_message_does_not_count_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    noted = Failures("a.b")
    noted.note([outcome_of(Reject("this learner was told to stop", requeue=True))])
    assert noted.newest == "" and not lines(caplog)


def test_refusals_are_logged_at_info_and_are_not_the_newest_failure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    noted = Failures("league.request")
    noted.note([failed(MatchmakingError("player 'main' has no opponent for PFSP")), boom("x")])
    monkeypatch.setattr(module, "LOG_EVERY", 0.0)
    noted.note([failed(MatchmakingError("player 'main' has no opponent for PFSP"))] * 2)
    noted.note([failed(PlayerUnavailable("player 'main' is paused"))])
    told = [record for record in caplog.records if record.name == module.__name__]
    assert [record.levelno for record in told] == [logging.INFO, logging.ERROR, *3 * [logging.INFO]]
    assert not any("Traceback" in record.getMessage() for record in told if record.levelno == logging.INFO)
    assert noted.newest.startswith("RuntimeError: x")
