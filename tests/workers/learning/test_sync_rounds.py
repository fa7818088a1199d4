"""Gathered rounds: one is always under way, none is used twice, and a run that cannot go on says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from support.stand_ins import Chords
from support.waiting import until

from workers.learning import sync_rounds as rounds_module
from workers.learning.sync_rounds import FAILURES, Rounds


@pytest.fixture
def make(chords: Chords) -> Iterator[Callable[..., Rounds]]:
    made: list[Rounds] = []

    def build(
        timeout: float = 60.0, given_up: list[str] | None = None, actors: Callable[[], int] = lambda: 3, **more: Any
    ) -> Rounds:
        reasons = given_up if given_up is not None else []
        made.append(Rounds(Celery("rounds"), actors, timeout, lambda why, by_user: reasons.append(why), **more))
        return made[-1]

    yield build
    for rounds in made:
        rounds.stop()


def later(rounds: Rounds, seconds: float) -> None:
    """Make the round under way older by `seconds`. Its watch does not run: tests call `_check` themselves."""
    rounds._dispatched_at -= seconds
    rounds._reported_at -= seconds
    rounds._open = {name: at - seconds for name, at in rounds._open.items()}


def test_a_round_asks_every_actor_for_the_same_version(chords: Chords, make: Callable[..., Rounds]) -> None:
    rounds = make()
    rounds.start(version=4)
    assert chords.dispatched == [(rounds.current, 4, 3)]


def test_each_round_has_a_name_of_its_own(chords: Chords, make: Callable[..., Rounds]) -> None:
    rounds = make()
    for _ in range(3):
        rounds.dispatch(1)
    assert len({name for name, _, _ in chords.dispatched}) == 3


def test_only_the_first_of_two_dispatches_of_a_round_to_come_back_is_used(
    chords: Chords, make: Callable[..., Rounds]
) -> None:
    rounds = make(timeout=60.0)
    rounds.dispatch(4)
    first = chords.last
    later(rounds, 30.0)
    rounds._check()
    assert len(chords.dispatched) == 1
    later(rounds, 31.0)
    rounds._check()
    assert len(chords.dispatched) == 2
    assert rounds.lost == 1
    assert chords.dispatched[1][1:] == (4, 3)
    assert rounds.returned(first), "late, but of the right weights: a round is not played again for ever"
    assert not rounds.returned(chords.last)


def test_a_rollout_longer_than_the_timeout_is_used_and_the_setting_is_named(
    chords: Chords, make: Callable[..., Rounds], caplog: pytest.LogCaptureFixture
) -> None:
    rounds = make(timeout=60.0)
    rounds.dispatch(4)
    first = chords.last
    later(rounds, 61.0)
    rounds._check()
    assert len(chords.dispatched) == 2
    with caplog.at_level("WARNING"):
        assert rounds.returned(first)
    assert "raise round_timeout" in caplog.text


def test_the_wait_between_dispatches_of_a_version_doubles_up_to_a_bound(make: Callable[..., Rounds]) -> None:
    rounds = make(timeout=60.0)
    waits = []
    for _ in range(8):
        rounds._dispatches += 1
        waits.append(rounds._patience())
    assert waits == [60, 120, 240, 480, 960, 960, 960, 960]


def test_a_version_without_an_answer_is_given_up_and_the_setting_is_named(
    chords: Chords, make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "SILENT", 3)
    monkeypatch.setattr(rounds_module, "LONGEST", 1.0)
    given_up: list[str] = []
    rounds = make(timeout=0.1, given_up=given_up)
    rounds.start(version=4)
    until(lambda: given_up)
    assert "dispatched 3 times" in given_up[0] and "round_timeout=0.1" in given_up[0]
    assert len(chords.dispatched) == 3


def test_a_round_without_an_answer_is_sent_again_long_before_the_timeout(
    chords: Chords, make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "STRAGGLER", 0.5)
    rounds = make(timeout=600.0)
    rounds.dispatch(4)
    assert rounds.returned(chords.last)  # so a round takes almost no time
    rounds.dispatch(5)
    later(rounds, 300.0)
    rounds._check()
    assert len(chords.dispatched) == 3
    assert chords.dispatched[2][1:] == (5, 3)


def test_the_log_says_what_a_round_waits_for(
    chords: Chords, make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "REPORT_EVERY", 0.5)
    monkeypatch.setattr(rounds_module, "answered", lambda app, gathered: 2)
    said: list[str] = []
    rounds = make(on_waiting=said.append)
    rounds.dispatch(4)
    rounds._chord = object()
    later(rounds, 1.0)
    rounds._check()
    assert said[0].startswith("1 of 3 actors have not answered for")


def test_a_returned_round_is_not_lost_however_long_the_update(chords: Chords, make: Callable[..., Rounds]) -> None:
    rounds = make(timeout=60.0)
    rounds.dispatch(4)
    assert rounds.returned(chords.last)
    later(rounds, 3600.0)
    rounds._check()
    assert len(chords.dispatched) == 1


def test_a_broker_that_is_away_when_a_lost_round_is_dispatched_is_tried_again(
    chords: Chords, make: Callable[..., Rounds]
) -> None:
    rounds = make(timeout=60.0)
    rounds.dispatch(4)
    chords.away = True
    later(rounds, 61.0)
    with pytest.raises(ConnectionError):
        rounds._check()
    assert rounds.lost == 1
    chords.away = False
    rounds._check()
    assert len(chords.dispatched) == 2


@pytest.mark.parametrize("first", [True, False])
def test_a_refused_dispatch_does_not_count(
    first: bool, chords: Chords, make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "SILENT", 2)
    given_up: list[str] = []
    rounds = make(timeout=60.0, given_up=given_up)
    chords.away = first
    rounds.start(version=4)
    if not first:
        chords.away = True
        with pytest.raises(ConnectionError):
            rounds.dispatch(5)
    until(lambda: chords.refused >= 4)
    chords.away = False
    until(lambda: len(chords.dispatched) == 2 - first)
    assert (rounds._dispatches, rounds._patience(), rounds.lost) == (1, 60.0, 0)
    assert rounds.returned(chords.last) and given_up == []


def test_the_first_look_after_servers_recover_sends_the_round(chords: Chords, make: Callable[..., Rounds]) -> None:
    """Check that each look tries once, however long the servers refused."""
    rounds = make(timeout=60.0)  # its watch does not run: this test calls `_check`
    rounds.dispatch(4)
    chords.away = True
    with pytest.raises(ConnectionError):
        rounds.dispatch(5)
    for look in range(20):
        with pytest.raises(ConnectionError):
            rounds._check()
        assert chords.refused == look + 2
    chords.away = False
    rounds._check()
    assert [version for _, version, _ in chords.dispatched] == [4, 5]
    rounds._check()
    assert len(chords.dispatched) == 2 and rounds.returned(chords.last)


def test_each_look_at_a_refused_round_comes_after_the_same_pause(
    chords: Chords, make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    rounds = make(timeout=60.0)
    monkeypatch.setattr(
        rounds._awaits_turn, "wait", lambda seconds: pauses.append(seconds) or rounds._stopping.is_set()
    )
    monkeypatch.setattr(rounds, "_check", lambda: rounds.stop() if len(pauses) == 12 else rounds._dispatch(5))
    chords.away = True
    rounds._watchdog()
    assert pauses == [rounds_module.LOOK_EVERY] * 12 and chords.refused == 11
    assert rounds_module.LOOK_EVERY <= 1.0, "new steps within 5 s of the servers' recovery leave no room for more"


def test_rounds_that_keep_failing_are_given_up(chords: Chords, make: Callable[..., Rounds]) -> None:
    given_up: list[str] = []
    rounds = make(given_up=given_up)
    rounds.start(version=4)
    for failure in range(FAILURES):
        assert len(chords.dispatched) == failure + 1
        rounds.failed(chords.last)
    assert given_up == [f"{FAILURES} rounds in a row failed in the actors, the last with: an actor's log has the error"]
    assert len(chords.dispatched) == FAILURES


def test_failures_with_a_success_between_are_forgiven(chords: Chords, make: Callable[..., Rounds]) -> None:
    given_up: list[str] = []
    rounds = make(given_up=given_up)
    rounds.start(version=4)
    for _ in range(3 * FAILURES):
        rounds.failed(chords.last)
        assert rounds.returned(chords.last)
        rounds.succeeded()
        rounds.dispatch(5)
    assert given_up == []


def test_the_failure_of_an_abandoned_round_does_not_count(chords: Chords, make: Callable[..., Rounds]) -> None:
    given_up: list[str] = []
    rounds = make(given_up=given_up)
    rounds.start(version=4)
    old = chords.last
    rounds.dispatch(5)
    for _ in range(2 * FAILURES):
        rounds.failed(old)
    assert given_up == []
    assert len(chords.dispatched) == 2


def test_the_same_error_of_the_users_own_code_twice_ends_the_run_with_it(
    chords: Chords, make: Callable[..., Rounds]
) -> None:
    given_up: list[str] = []
    rounds = make(given_up=given_up)
    rounds.start(version=4)
    why = "environment 'game.py:Game': step() failed at game.py:7: ValueError: no such move"
    rounds.failed(chords.last, why, by_user=True)
    assert given_up == []
    rounds.failed(chords.last, why, by_user=True)
    assert given_up == [why]
    assert len(chords.dispatched) == 2


def test_a_round_begins_once_it_is_this_players_turn_and_it_is_not_held(
    chords: Chords, make: Callable[..., Rounds]
) -> None:
    asked: list[int] = []
    answers: list[bool | Exception] = [False, redis.ConnectionError("away"), False, True]

    def turn() -> bool:
        asked.append(1)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    rounds = make(turn=turn)
    rounds.start(version=4)
    until(lambda: chords.dispatched)
    assert len(asked) == 4 and chords.dispatched == [(rounds.current, 4, 3)]
    asked.clear()
    rounds.hold()
    rounds.dispatch(5)
    assert asked == []
    rounds.release()
    until(lambda: len(chords.dispatched) == 2)
    assert chords.dispatched[1] == (rounds.current, 5, 3)
    asked.clear()
    answers[:] = [False]
    rounds.dispatch(6)
    rounds.hold()
    until(lambda: rounds._withheld)
    answers[:] = [True]
    rounds.release()
    until(lambda: len(chords.dispatched) == 3)


def test_after_a_stop_nothing_is_dispatched(chords: Chords, make: Callable[..., Rounds]) -> None:
    rounds = make(timeout=60.0)
    rounds.start(version=4)
    rounds.stop()
    rounds.dispatch(5)
    rounds.failed(chords.last)
    assert len(chords.dispatched) == 1


def test_a_round_has_as_many_rollouts_as_there_are_actors_now(
    make: Callable[..., Rounds], chords: Chords, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(rounds_module, "gather", lambda app, calls, **_: asked.append(len(calls)))
    counts = iter((2, 5, 1))
    rounds = make(actors=lambda: next(counts))
    for version in range(3):
        rounds.dispatch(version)
    assert asked == [2, 5, 1]


def test_rollouts_for_a_player_are_told_how_many_share_their_round(
    make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[set[tuple[Any, ...]]] = []
    monkeypatch.setattr(
        rounds_module, "gather", lambda app, calls, **_: told.append({tuple(call.args[1:]) for call in calls})
    )
    counts = iter((2, 4))
    rounds = make(actors=lambda: next(counts), player="main")
    for version in range(2):
        rounds.dispatch(version)
    assert told == [{(0, "main", 2)}, {(1, "main", 4)}]
