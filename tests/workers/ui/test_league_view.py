"""The panel of a league: each player with its state, the goal, and notes on problems."""

from __future__ import annotations

import io

from rich.console import Console

from workers.ui.league_view import LeagueFigures, LeagueView, league_line, strength


def figures() -> LeagueFigures:
    status = {"steps": 1000, "steps_per_second": 250.0, "version": 3, "mean_return": 0.5}
    return LeagueFigures(
        players={"main": dict(status), "late": dict(status), "idle": dict(status), "new": {}},
        states={"main": "learning", "late": "frozen", "idle": "paused", "new": "not there yet"},
        kept={"new": 660_000},
    )


def panel(view: LeagueView, notes: list[str]) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(view._league_panel(figures(), {}, "3 of 3 alive, 1 done", notes))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_each_player_has_a_state_and_only_learning_ones_a_speed() -> None:
    text = panel(LeagueView("t", 0.02, 1000, io.StringIO()), ["player main: no step for 12 s"])
    rows = {line.split()[1]: line for line in text.splitlines() if len(line.split()) > 3}
    assert "learning" in rows["main"] and "250" in rows["main"]
    assert "frozen" in rows["late"] and "250" not in rows["late"]
    assert "paused" in rows["idle"] and "250" not in rows["idle"]
    assert "660,000" in rows["new"], "a resumed run counts earlier steps"
    assert "exploitability 0.02 of the Nash mixture" in text
    assert "player main: no step for 12 s" in text
    assert "3 of 3 alive, 1 done" in text


def test_a_name_that_looks_like_markup_is_shown_as_it_is() -> None:
    view, shown = LeagueView("t", None, 1000, io.StringIO()), figures()
    shown.players["[/]"] = {}
    shown.score = {"frozen": 1, "games": 2, "mixture": None, "references": {"[/bold]": 0.5}}
    console = Console(file=io.StringIO(), width=120)
    console.print(view._league_panel(shown, {"[/x]": 1}, "", ["[/]"]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "against [/bold] +0.500" in text and "[/x] 1" in text


def test_the_line_names_the_goal_and_players_that_do_not_learn() -> None:
    line = league_line(figures(), "3 of 3 alive", 0.02)
    assert "steps 663,000" in line and "goal exploitability 0.02" in line
    assert line.endswith("late frozen, idle paused, new not there yet")


def test_exploitability_stands_beside_that_of_uniform_play() -> None:
    score = {"mixture": 0.0113, "main_agent": 0.042, "uniform": 11 / 24, "references": {}}
    assert strength(score) == "exploitability: Nash mixture 0.0113, main agent 0.0420, uniform play 0.4583"
    assert strength({"mixture": 0.0113, "main_agent": None, "references": {}}) == "exploitability: Nash mixture 0.0113"
    assert strength({"mixture": None, "references": {"uniform": 0.5}}) == "main agent against uniform +0.500"
