"""Gathered rounds: one is always under way, none is used twice, and a run that cannot go on says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from waiting import until

from tasks.topology import Topology
from warren.errors import ConfigurationError, NotFinite, PoolError
from workers.config.schema import Config, EnvConfig, Sampling
from workers.learning import sync_rounds as rounds_module
from workers.learning import worker as learner_module
from workers.learning.sync_rounds import FAILURES, Rounds
from workers.learning.worker import LearnerRole


class Chords:
    """Stands for the broker: what was dispatched, as (round id, version, number of rollouts)."""

    def __init__(self) -> None:
        self.dispatched: list[tuple[str, int, int]] = []
        self.away = False

    def gather(self, app: Any, calls: Any, then: Any, on_error: Any) -> None:
        if self.away:
            raise ConnectionError("the broker is away")
        assert then.task == "learner.learn"
        assert on_error.task == "learner.round_failed"
        assert all(call.task == "actor.rollout" and call.options["ignore_result"] for call in calls)
        (round_id, version), *_ = {tuple(call.args) for call in calls}
        assert tuple(on_error.args) == (round_id,)
        self.dispatched.append((round_id, version, len(calls)))

    @property
    def last(self) -> str:
        return self.dispatched[-1][0]


@pytest.fixture
def chords(monkeypatch: pytest.MonkeyPatch) -> Chords:
    chords = Chords()
    monkeypatch.setattr(rounds_module, "gather", chords.gather)
    return chords


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


def test_a_round_asks_every_actor_for_the_same_version(chords: Chords, make: Callable[..., Rounds]) -> None:
    rounds = make()
    rounds.start(version=4)
    assert chords.dispatched == [(rounds.current, 4, 3)]


def test_each_round_has_a_name_of_its_own(chords: Chords, make: Callable[..., Rounds]) -> None:
    rounds = make()
    for _ in range(3):
        rounds.dispatch(1)
    assert len({name for name, _, _ in chords.dispatched}) == 3


def test_of_a_round_that_was_dispatched_twice_the_first_to_come_back_is_used_and_no_other(
    chords: Chords, make: Callable[..., Rounds]
) -> None:
    rounds = make(timeout=0.5)
    rounds.start(version=4)
    first = chords.last
    until(lambda: len(chords.dispatched) == 2)
    assert rounds.lost == 1
    assert chords.dispatched[1][1:] == (4, 3)
    assert rounds.returned(first), "late, and made with the right weights: a round is not played again for ever"
    assert not rounds.returned(chords.last)


def test_a_rollout_that_takes_longer_than_the_timeout_is_learned_from_and_the_setting_is_named(
    chords: Chords, make: Callable[..., Rounds], caplog: pytest.LogCaptureFixture
) -> None:
    rounds = make(timeout=0.2)
    rounds.start(version=4)
    first = chords.last
    until(lambda: len(chords.dispatched) >= 2)
    with caplog.at_level("WARNING"):
        assert rounds.returned(first)
    assert "raise round_timeout" in caplog.text


def test_between_two_dispatches_of_a_version_the_wait_doubles_up_to_a_bound(make: Callable[..., Rounds]) -> None:
    rounds = make(timeout=60.0)
    waits = []
    for _ in range(8):
        rounds._dispatches += 1
        waits.append(rounds._patience())
    assert waits == [60, 120, 240, 480, 960, 960, 960, 960]


def test_a_version_that_nobody_answers_is_given_up_and_the_setting_is_named(
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


def test_rounds_go_on_without_an_actor_that_does_not_answer_long_before_the_timeout(
    chords: Chords, make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "STRAGGLER", 0.5)
    rounds = make(timeout=600.0)
    rounds.start(version=4)
    assert rounds.returned(chords.last)  # so a round takes next to no time
    rounds.dispatch(5)
    until(lambda: len(chords.dispatched) == 3)
    assert chords.dispatched[2][1:] == (5, 3)


def test_what_is_waited_for_is_said(
    chords: Chords, make: Callable[..., Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "REPORT_EVERY", 0.5)
    monkeypatch.setattr(rounds_module, "answered", lambda app, gathered: 2)
    said: list[str] = []
    rounds = make(on_waiting=said.append)
    rounds.start(version=4)
    rounds._chord = object()
    until(lambda: said)
    assert said[0].startswith("1 of 3 actors have not answered for")


def test_a_round_that_has_returned_is_not_taken_for_lost_however_long_the_update(
    chords: Chords, make: Callable[..., Rounds]
) -> None:
    rounds = make(timeout=0.3)
    rounds.start(version=4)
    assert rounds.returned(chords.last)
    time.sleep(1.5)  # the watchdog checks once a second
    assert len(chords.dispatched) == 1


def test_a_broker_that_is_away_when_a_lost_round_is_dispatched_is_tried_again(
    chords: Chords, make: Callable[..., Rounds]
) -> None:
    rounds = make(timeout=0.3)
    rounds.start(version=4)
    chords.away = True
    until(lambda: rounds.lost >= 1)
    chords.away = False
    until(lambda: len(chords.dispatched) == 2)


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


def test_the_failure_of_a_round_long_given_up_counts_for_nothing(chords: Chords, make: Callable[..., Rounds]) -> None:
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


def test_after_a_stop_nothing_is_dispatched(chords: Chords, make: Callable[..., Rounds]) -> None:
    rounds = make(timeout=0.2)
    rounds.start(version=4)
    rounds.stop()
    rounds.dispatch(5)
    rounds.failed(chords.last)
    assert len(chords.dispatched) == 1


# The learner's half: what it does with a round that came back.


class Trainer:
    """Stands for training: an update is a call, and may fail."""

    ranks, leads = None, True

    def __init__(self) -> None:
        self.progress = SimpleNamespace(
            version=0, steps=0, mean_return=None, steps_per_second=0.0, returns=[], episodes=0, staleness=0.0
        )
        self.outcome: dict[str, Any] | None = None
        self.attempts = SimpleNamespace(troubles=0, trouble="")
        self.errors: list[Exception] = []
        self.updates = 0
        self.spare: list[tuple[str, int]] = []

    def learn(self, calls: Any) -> list[Any]:
        if self.errors:
            raise self.errors.pop(0)
        self.updates += 1
        self.progress.version += 1
        return [None] * len(calls)

    def settle(self, became: Any) -> None:
        self.spare += [(kind, payload["number"]) for kind, payload in became if "number" in payload]


@pytest.fixture
def role(chords: Chords, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LearnerRole]]:
    stopped = threading.Event()
    monkeypatch.setattr(learner_module, "stop_worker", stopped.set)
    monkeypatch.setattr(learner_module, "actors_now", lambda session: session.actors)
    made: list[LearnerRole] = []

    def build(sampling: Sampling = Sampling.gathered) -> LearnerRole:
        config = Config(sampling=sampling, actors=3, env=EnvConfig(goal=None))
        session: Any = SimpleNamespace(app=Celery("learner"), actors=config.actors, topology=Topology("t"), redis=None)
        made.append(LearnerRole(config, session, Trainer()))  # type: ignore[arg-type]
        return made[-1]

    build.stopped = stopped  # type: ignore[attr-defined]
    yield build
    for learner in made:
        learner.on_stopping()


def three_rollouts(round_id: str) -> list[list[dict[str, str]]]:
    return [[{"round": round_id}] * 3]


def test_an_update_starts_the_next_round_with_the_new_version(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner = role()
    assert learner.rounds is not None
    learner.rounds.start(0)
    assert learner.learn(three_rollouts(chords.last)) == [None]
    assert [version for _, version, _ in chords.dispatched] == [0, 1]


def test_a_late_round_is_dropped_without_an_update(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    late = chords.last
    learner.rounds.dispatch(0)
    assert learner.learn(three_rollouts(late)) == [None]
    assert learner.trainer.updates == 0
    assert len(chords.dispatched) == 2


def test_the_error_of_a_rollout_is_the_learners_in_one_line_and_its_exit_says_whose_it_is(
    chords: Chords, role: Callable[..., LearnerRole], caplog: pytest.LogCaptureFixture
) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    why = "environment 'game.py:Game': step() failed at game.py:7: ValueError: no such move"
    for _ in range(2):
        (payloads,) = three_rollouts(chords.last)
        payloads[1] = {"round": chords.last, "failed": why, "by_user": True}  # type: ignore[dict-item]
        assert learner.learn([payloads]) == [None]
    assert learner.trainer.updates == 0
    assert learner.failure == why
    assert any(why in record.getMessage() and "\n" not in record.getMessage() for record in caplog.records)
    with pytest.raises(ConfigurationError, match="no such move"):
        learner.status(0)


def test_a_learner_that_is_behind_its_actors_publishes_past_them(
    chords: Chords, role: Callable[..., LearnerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner: Any = role()

    def skip_past(version: int) -> None:
        learner.trainer.progress.version = version + 1

    monkeypatch.setattr(learner.trainer, "skip_past", skip_past, raising=False)
    learner.rounds.start(3)
    assert learner.learn([[{"round": chords.last, "superseded": 9}] * 3]) == [None]
    assert [version for _, version, _ in chords.dispatched] == [3, 10]
    assert learner.trainer.updates == 0


def test_a_broker_that_is_away_when_the_next_round_is_dispatched_undoes_no_update(
    chords: Chords, role: Callable[..., LearnerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "STRAGGLER", 0.5)
    learner: Any = role()
    learner.rounds.start(0)
    chords.away = True
    assert learner.learn(three_rollouts(chords.last)) == [None], "the data was trained on, so it is acknowledged"
    chords.away = False
    until(lambda: len(chords.dispatched) == 2)
    assert chords.dispatched[1][1] == 1


def test_an_update_that_fails_is_followed_by_another_round(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    learner.trainer.errors = [ConnectionError("Redis is away")]
    with pytest.raises(ConnectionError):
        learner.learn(three_rollouts(chords.last))
    assert len(chords.dispatched) == 2, "nothing would ever start the next round"
    assert learner.learn(three_rollouts(chords.last)) == [None]
    assert learner.failure is None


@pytest.mark.parametrize("sampling", list(Sampling))
def test_a_learner_whose_updates_keep_failing_gives_up_and_says_why(
    chords: Chords, role: Callable[..., LearnerRole], sampling: Sampling
) -> None:
    learner: Any = role(sampling)
    if learner.rounds is not None:
        learner.rounds.start(0)
    learner.trainer.errors = [OSError(28, "No space left on device")] * 3
    for left in (2, 1, 0):
        assert learner.failure is None
        with pytest.raises(OSError, match="No space"):
            learner.learn(three_rollouts(chords.last) if learner.rounds is not None else [{"round": None}])
        assert len(learner.trainer.errors) == left
    assert learner.failure == ("3 updates in a row failed, the last with OSError: [Errno 28] No space left on device")
    assert role.stopped.is_set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("sampling", list(Sampling))
def test_a_learner_whose_update_came_to_no_number_gives_up_at_once_and_names_the_last_good_checkpoint(
    chords: Chords, role: Callable[..., LearnerRole], sampling: Sampling
) -> None:
    learner: Any = role(sampling)
    if learner.rounds is not None:
        learner.rounds.start(0)
    learner.trainer.errors = [NotFinite("ppo, minibatch 3: value_loss is nan")]
    learner.trainer.last_good = lambda: "the last good checkpoint is 7"
    with pytest.raises(NotFinite):
        learner.learn(three_rollouts(chords.last) if learner.rounds is not None else [{"round": None}])
    assert role.stopped.is_set()  # type: ignore[attr-defined]
    with pytest.raises(NotFinite, match="value_loss is nan; the last good checkpoint is 7"):
        learner.status(0)
    if learner.rounds is not None:
        assert len(chords.dispatched) == 1, "no round follows"


def test_of_a_deterministic_round_it_does_not_matter_who_answers_first(
    chords: Chords, role: Callable[..., LearnerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner: Any = role()
    learner.config.deterministic = True
    learner.rounds.start(0)
    seen: list[Any] = []
    monkeypatch.setattr(learner.trainer, "learn", lambda calls: seen.extend(calls) or [None])
    learner.learn([[{"round": chords.last, "actor": actor} for actor in (2, 0, 1)]])
    assert [payload["actor"] for payload in seen[0]] == [0, 1, 2]


def test_the_last_update_starts_no_round(chords: Chords, role: Callable[..., LearnerRole]) -> None:
    learner: Any = role()
    learner.rounds.start(0)
    learner.trainer.outcome = {"state": "solved"}
    learner.learn(three_rollouts(chords.last))
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


def test_the_thread_that_keeps_the_weights_survives_any_error(
    role: Callable[..., LearnerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_module, "KEEP_EVERY", 0.01)
    learner, polls = role(), threading.Semaphore(0)

    def fail() -> None:
        polls.release()
        raise PoolError("no memory left")

    monkeypatch.setattr(learner, "keep", fail)
    thread = threading.Thread(target=learner._keep, daemon=True)
    thread.start()
    assert polls.acquire(timeout=20)
    assert polls.acquire(timeout=20), "the thread died of the first error"
    learner.ended.set()
    thread.join(20)
    assert not thread.is_alive()
