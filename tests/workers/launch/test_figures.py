"""Tests of figures on events: an event is checked as a whole, and no figure of an invalid one is used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.repeats import Repeats
from workers.launch.watching.figures import Troubles, exit_status, scores, statuses
from workers.learning.metrics import Progress
from workers.ui.league_view import LeagueFigures, league_line
from workers.ui.training_view import plain_line


def good() -> dict[str, Any]:
    return {"state": "training", **Progress(steps=7, version=2).figures(), "losses": {"policy": 0.5}}


def test_a_learners_own_figures_are_taken_over() -> None:
    figures = statuses()
    figures.receive(good())
    assert figures["steps"] == 7 and figures["version"] == 2 and figures["state"] == "training"
    figures.receive({"state": "finished"})
    assert figures["state"] == "finished" and figures["steps"] == 7


@pytest.mark.parametrize(
    "payload",
    [
        *({**good(), "steps": wrong} for wrong in ("many", None, 1.5, True, [1], {"a": 1})),
        *({**good(), "mean_return": wrong} for wrong in ("high", float("nan"), [1.0])),
        *({**good(), "data_age": wrong} for wrong in (None, float("inf"), "old")),
        *({"steps": 9}, {}, None, 5, "steps", [["steps", 9]]),
    ],
)
def test_an_event_with_one_invalid_field_changes_no_figure(payload: Any) -> None:
    figures = statuses()
    figures.receive(good())
    before = dict(figures)
    figures.receive(payload)
    assert figures == before


def test_the_first_invalid_event_is_logged_and_the_rest_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures, now = statuses(), 100.0
    monkeypatch.setattr(figures, "_dropped", Repeats(lambda: now))
    for _ in range(1000):
        figures.receive({"steps": "many"})
    (told,) = caplog.messages
    assert told.startswith("dropped an invalid event: ") and "so far" not in told
    now += 10.0
    figures.receive({"steps": "many"})
    assert caplog.messages[1:] == [f"{told} (1,001 so far)"]


def test_a_score_brings_the_figure_of_uniform_play() -> None:
    found, score = scores(), {"frozen": 1, "games": 2, "mixture": 0.1, "references": {}, "uniform": 0.5}
    found.receive(score)
    assert found["uniform"] == 0.5
    found.receive({**score, "uniform": "half"})
    assert found["uniform"] == 0.5


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(name=st.sampled_from(sorted(good())), value=ANYTHING, score=st.dictionaries(st.sampled_from(
    ["frozen", "games", "mixture", "main_agent", "references", "steps"]), ANYTHING))  # fmt: skip
def test_any_event_can_be_shown(name: str, value: Any, score: dict[str, Any]) -> None:
    figures, found = statuses(), scores()
    figures.receive({**good(), name: value})
    found.receive(score)
    found.receive({"frozen": 1, "games": 2, "mixture": None, "references": {}, **score})
    plain_line(figures if "steps" in figures else None, {}, "", goal=1.0)
    league_line(LeagueFigures(players={"main": figures}, score=found), "")


def test_a_learners_failure_to_write_metrics_is_reported_once() -> None:
    said: list[str] = []
    troubles, figures = Troubles(said.append), statuses()
    for trouble in ("", "could not write the metrics: OSError: full", "could not write the metrics: OSError: full", ""):
        figures.receive({**good(), "trouble": trouble})
        troubles.poll("learner", figures)
    assert said == [
        "warning: learner could not write the metrics: OSError: full; it learns on",
        "learner can write again",
    ]


@pytest.mark.parametrize(("payload", "status"), [(0, 0), (130, 130), ("0", 1), (None, 1), (True, 1), (-1, 1), (1e9, 1)])
def test_a_leaders_end_status_becomes_a_valid_exit_status(payload: Any, status: int) -> None:
    assert exit_status(payload) == status
