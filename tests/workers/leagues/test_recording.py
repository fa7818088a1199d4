"""Selection of matches for recording: every n-th, and those that the expected winner lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from league.state.in_memory import MemoryLeague
from league.state.league_state import Match
from warren.errors import ConfigurationError, LeagueError
from workers.config.league import LeagueConfig, PlayerConfig
from workers.leagues.recording import MatchRecorder
from workers.replays.match_record import RecordedMatch
from workers.rollout.games.match_result import MatchResult


def league(**given: Any) -> LeagueConfig:
    return LeagueConfig(env="matrix:rps", players={"main": PlayerConfig("self_play")}, **given)


class Sent(list[RecordedMatch]):
    def send(self, record: RecordedMatch) -> None:
        self.append(record)


@pytest.fixture
def matches() -> list[Match]:
    state = MemoryLeague(seed=1)
    state.add_player("main", "random", {})
    state.add_player("other", "random", {})
    return [state.request("main") for _ in range(10)]


def play(recorder: MatchRecorder, match: Match, outcomes: str) -> bool:
    """Play a match, and return whether its games were kept."""
    recorder.begins(match, lambda: None)
    kept = recorder.wants(match)
    expected = recorder.expected(match)
    recorder.counted(match, MatchResult(match.id, np.zeros(len(outcomes), np.float32)), outcomes, expected)
    return kept


def test_every_nth_match_of_an_actor_is_recorded(matches: list[Match]) -> None:
    sent = Sent()
    recorder = MatchRecorder(league(replay_every=4), sent, "actor-0", lambda *_: (0.0, 0.0))  # type: ignore[arg-type]
    kept = [play(recorder, match, "w") for match in matches]
    assert kept == [number % 4 == 0 for number in range(10)]
    assert [record.match for record in sent] == [matches[number].id for number in (0, 4, 8)]


@pytest.mark.parametrize(
    ("outcomes", "ratings", "upset"),
    [
        ("llw", (1600.0, 1200.0), True),
        ("lww", (1600.0, 1200.0), False),
        ("lw", (1600.0, 1200.0), False),
        ("wwl", (1200.0, 1600.0), True),
        ("llw", (1300.0, 1200.0), False),
    ],
)
def test_an_upset_is_recorded(matches: list[Match], outcomes: str, ratings: tuple[float, float], upset: bool) -> None:
    sent = Sent()
    recorder = MatchRecorder(league(replay_upsets=0.75), sent, "actor-0", lambda *_: ratings)  # type: ignore[arg-type]
    assert play(recorder, matches[0], outcomes)
    assert [record.rules for record in sent] == ([("upset",)] if upset else [])


def test_a_match_with_unknown_ratings_is_not_an_upset(matches: list[Match]) -> None:
    def away(*_: str) -> tuple[float, float]:
        raise LeagueError("away")

    sent = Sent()
    play(MatchRecorder(league(replay_upsets=0.75), sent, "actor-0", away), matches[0], "l")  # type: ignore[arg-type]
    assert sent == []


def test_invalid_recording_rules_are_refused() -> None:
    with pytest.raises(ConfigurationError) as refused:
        league(replay_every=-1, replay_upsets=0.4, replay_evaluations=-2, replay_bytes=1000)
    assert [problem.partition("=")[0] for problem in refused.value.problems] == [
        "replay_every", "replay_evaluations", "replay_upsets", "replay_bytes",
    ]  # fmt: skip
