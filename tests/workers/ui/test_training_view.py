"""The training view: plain lines in a file, one panel in a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from workers.learning.metrics import Progress
from workers.ui.training_view import View, cells_of, plain_line


@pytest.fixture
def figures() -> dict[str, Any]:
    progress = Progress(steps=123_456, version=42, episodes=1234, data_age=0.0371, staleness=1.25)
    progress.returns.extend([10.0, 21.0])
    return progress.figures()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_the_view_prints_few_plain_lines(figures: dict[str, Any]) -> None:
    stream = io.StringIO()
    with View("project/trial", goal=475.0, total_steps=1000, stream=stream) as view:
        view.say("run folder runs/project/trial [x]")
        for _ in range(50):
            view.show(figures, {"actor.main": 0, "learner.main": 2}, "3 of 3 alive")
    assert stream.getvalue().splitlines() == [
        "run folder runs/project/trial [x]",
        "steps 123,456, steps/s 0, mean return 15.5 over 2 episodes, episodes 1,234, weight version 42, "
        "data age 37 ms, 1.2 versions, queues actor.main 0, learner.main 2, processes 3 of 3 alive, goal 475",
    ]


def test_before_the_first_update_the_view_says_what_it_waits_for() -> None:
    waiting = "state waiting for the first update, processes 3 of 3 alive"
    assert plain_line(None, {}, "3 of 3 alive", goal=None) == waiting
    assert plain_line(None, {"actor.main": 4}, "3 of 3 alive", goal=None) == f"{waiting}, queues actor.main 4"


def test_the_view_says_that_no_episode_has_ended_yet(figures: dict[str, Any]) -> None:
    cells = dict(cells_of({**figures, "mean_return": None}, {}, ""))
    assert cells["mean return"] == "none yet"


def rendered(view: View, *shown: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(view._panel(*shown))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def test_the_panel_shows_every_figure(figures: dict[str, Any]) -> None:
    view = View("project/trial: CartPole-v1", goal=475.0, total_steps=1000, stream=io.StringIO())
    text = rendered(view, figures, {"actor.main": 7}, "3 of 3 alive")
    for name, value in cells_of(figures, {"actor.main": 7}, "3 of 3 alive"):
        assert name in text
        assert value in text
    assert "project/trial: CartPole-v1" in text
    assert "16 of 475" in text


def test_the_panel_of_a_run_without_a_goal_counts_steps(figures: dict[str, Any]) -> None:
    view = View("t", goal=None, total_steps=200_000, stream=io.StringIO())
    assert "123,456 of 200,000" in rendered(view, figures, {}, "")
    assert "0 of 200,000" in rendered(view, None, {}, "")


def test_a_goal_below_zero_is_shown_by_steps(figures: dict[str, Any]) -> None:
    view = View("t", goal=-100.0, total_steps=200_000, stream=io.StringIO())
    assert "123,456 of 200,000" in rendered(view, figures, {}, "")


def test_a_terminal_shows_both_lines_and_the_panel(figures: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with View("project/trial", goal=475.0, total_steps=1000, stream=stream) as view:
        view.say("restarting actor-0")
        view.show(figures, {}, "3 of 3 alive")
        assert view._live is not None
        view._live.refresh()
    text = stream.getvalue()
    assert "restarting actor-0" in text
    assert "123,456" in text
    assert view._live is None
