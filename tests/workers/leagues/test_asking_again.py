"""Tests of an actor whose league worker does not answer: it asks again soon, and another worker may answer."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from league.state.league_state import Match
from warren.errors import DeadlinePassed, LeagueError
from workers.leagues import client as module
from workers.leagues.client import DEADLINE, LeagueClient
from workers.leagues.player_host import PlayerHost
from workers.rollout.games.match_result import MatchResult


class Workers:
    """A stand-in for the league's workers: the first `stopped` calls get no answer."""

    def __init__(self, stopped: int, answer: Any = None) -> None:
        self.stopped, self.answer, self.asked = stopped, answer, list[tuple[tuple[Any, ...], float]]()

    def call(self, service: str, *arguments: Any, deadline: float) -> Any:
        self.asked.append((arguments, deadline))
        if len(self.asked) <= self.stopped:
            raise DeadlinePassed(service, f"no answer within {deadline:g} s")
        return self.answer or f"{service} was answered"


def client_of(workers: Workers, monkeypatch: pytest.MonkeyPatch, **more: float) -> LeagueClient:
    monkeypatch.setattr(module, "AGAIN_AFTER", 0.0)
    made = LeagueClient.__new__(LeagueClient)  # without a broker
    made.holder, made._stopping, made._patience = "actor-0", threading.Event(), more.get("patience", 120.0)
    made._solver = workers  # type: ignore[assignment]
    return made


def test_a_stopped_league_worker_has_a_second_before_another_is_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workers = Workers(stopped=1)
    with caplog.at_level(logging.INFO):
        assert client_of(workers, monkeypatch)._ask("league.request", "main", "id") == "league.request was answered"
    assert workers.asked == [(("main", "id"), 1.0), (("main", "id"), 2.0)], "the same request, so it counts once"
    assert [record.levelname for record in caplog.records] == ["INFO"], "one worker that is busy is no trouble"


def test_workers_that_all_stay_silent_are_asked_with_growing_patience(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workers = Workers(stopped=6)
    client_of(workers, monkeypatch)._ask("league.request")
    assert [deadline for _, deadline in workers.asked] == [1.0, 2.0, 4.0, 8.0, DEADLINE, DEADLINE, DEADLINE]
    assert "asking league.request again" in caplog.text


def test_a_league_that_never_answers_is_given_up_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LeagueError, match=r"did not answer league\.request .* is python -m workers\.league up\?"):
        client_of(Workers(stopped=9), monkeypatch, patience=-1.0)._ask("league.request")


@pytest.mark.parametrize(("reason", "counts"), [("duplicate", True), ("late", False), ("unknown", False)])
def test_a_result_that_was_counted_at_the_first_try_is_recorded_at_the_second(
    reason: str, counts: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorded: list[Any] = []
    recorder: Any = SimpleNamespace(expected=lambda match: None, counted=lambda *given: recorded.append(given))
    settings: Any = SimpleNamespace(series=1, lease=60.0)
    client = client_of(Workers(stopped=1, answer=["refused", reason]), monkeypatch)
    players: Any = None
    host = PlayerHost("main", settings, client, players, recorder, lambda: None)
    match = Match("m", "main", "main", "self", "actor-0", 0, 0, False, False, 0)
    host.report(match, MatchResult("m", np.ones(4, np.float32)))
    assert bool(recorded) is counts
    assert (f"refused the result of match m as {reason}" in caplog.text) is not counts
