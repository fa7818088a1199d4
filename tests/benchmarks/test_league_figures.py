"""Figures of curves that were kept: runs of one kind only, and the page says what they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.league import __main__ as command
from benchmarks.league import figures
from benchmarks.league.figures import Line, read

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "strength_figures.md").read_text()
HELD_OUT = {
    "liars_dice": ("Liar's dice", 3),
    "goofspiel_4": ("Goofspiel, 4 cards, hidden bids", 4),
    "goofspiel_5": ("Goofspiel, 5 cards", 3),
    "blotto": ("Blotto, 105 strategies", 4),
}


def curve(side, seed, values, game="rps", **more):
    return [
        {"game": game, "side": side, "seed": seed, "seconds": float(second), "nash_mixture": value, **more}
        for second, value in enumerate(values)
    ]


@pytest.fixture
def figures_of(tmp_path, monkeypatch, capsys):
    def run(lines, *options):
        file = tmp_path / "curves.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        monkeypatch.setattr("sys.argv", ["league", "figures", str(file), *options])
        command.main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def test_kept_curves_give_their_figures_again(tmp_path, monkeypatch, capsys):
    for game in ("rps", "leduc"):
        lines = [*curve("league", 1, [1.0, 0.2], game), *curve("control", 1, [1.0, 0.3], game)]
        (tmp_path / f"{game}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    picture_file = tmp_path / "all.png"
    files = [str(tmp_path / f"{game}.jsonl") for game in ("rps", "leduc")]
    monkeypatch.setattr("sys.argv", ["league", "figures", *files, "--picture", str(picture_file)])
    command.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["rps_league"], found["rps_control"], found["leduc_control"]) == (0.2, 0.3, 0.3)
    assert picture_file.stat().st_size > 0
    monkeypatch.setattr("sys.argv", ["league", "figures", str(tmp_path / "none.jsonl")])
    with pytest.raises(SystemExit, match=r"none\.jsonl: there are no curves"):
        command.main()


KINDS = [
    *curve("league", 1, [1.0, 0.5], settings="more epochs", budget=45.0, clock="processor"),
    *curve("league", 2, [1.0, 0.2], budget=45.0, clock="processor"),
    *curve("control", 1, [1.0, 0.3], budget=45.0, clock="processor"),
    *curve("control", 2, [1.0, 0.4], budget=45.0, clock="processor"),
]


def test_figures_of_runs_of_several_kinds_are_refused(figures_of):
    with pytest.raises(SystemExit, match=r"rps, league has runs of 2 kinds: 45 \(processor\); more epochs, 45"):
        figures_of(KINDS)
    with pytest.raises(SystemExit, match=r"control has runs of 2 kinds: 30 \(processor\); 45 \(processor\).*--seeds"):
        figures_of([*KINDS[2:], *curve("control", 3, [1.0], budget=30.0, clock="processor")])
    with pytest.raises(SystemExit, match="--seeds 7 8: no run has such a seed"):
        figures_of(KINDS, "--seeds", "7", "8")


@pytest.mark.parametrize(
    ("options", "league", "control"),
    [
        (["--seeds", "1", "1"], [0.5], [0.3]),
        (["--seeds", "2", "3"], [0.2], [0.4]),
        (["--settings", "more epochs"], [0.5], [0.3, 0.4]),
    ],
    ids=["seed 1", "seeds 2 to 3", "settings"],
)
def test_runs_are_chosen_by_seeds_or_settings(figures_of, options, league, control):
    found = figures_of(KINDS, *options)
    assert (found["rps_league_by_seed"], found["rps_control_by_seed"]) == (league, control)


def test_least_win_rates_and_cycles_have_paired_intervals(figures_of):
    sides = {"league": (0.5, 0.1), "control": (0.4, 0.3)}
    found = figures_of(
        [
            line
            for side, (rate, cycles) in sides.items()
            for seed in (1, 2)
            for line in curve(side, seed, [0.1], least_win_rate=rate + seed / 100, cycles=cycles)
        ]
    )
    assert found["rps_least_win_rate_interval"] == pytest.approx([0.1, 0.1])
    assert found["rps_cycles_interval"] == pytest.approx([-0.2, -0.2])


SIDES = ("league", "control")


def ends_of(lines: Sequence[Line]) -> dict[tuple[str, int], Line]:
    """Return (side, seed) -> the last line of its curve."""
    return {run: curve[-1] for run, curve in figures.by_run(lines).items()}


def test_the_page_of_figures_says_of_leduc_what_is_kept():
    ends = ends_of(read(DOCS / "curves/league_leduc.jsonl"))
    text = " ".join(PAGE.split())
    for name, title in (("nash_mixture", "mixture"), ("main_agent", "last iterate")):
        league, control = ([line[name] for (of, _), line in sorted(ends.items()) if of == side] for side in SIDES)
        assert len(league) == len(control) == 10
        differences = np.subtract(league, control)
        low, high = figures.paired_interval(list(differences))
        assert f"{title} {differences.mean():+.3f} ({low:+.3f} to {high:+.3f}" in text


def spread(values: Sequence[float], digits: int) -> str:
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


@pytest.mark.parametrize("game", HELD_OUT)
def test_the_page_of_figures_says_of_held_out_games_what_is_kept(game):
    title, digits = HELD_OUT[game]
    lines = [line for line in read(DOCS / "curves/league_held_out_earned.jsonl") if line["game"] == game]
    ends = ends_of(figures.chosen(lines, range(1101, 1111), None))
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {title} |"))
    for name, precision in (("nash_mixture", digits), ("main_agent", 3)):
        of = {
            side: [end[name] for (one, _), end in sorted(ends.items()) if one == side] for side in ("league", "control")
        }
        assert len(of["league"]) == len(of["control"]) == 10
        differences = np.subtract(of["league"], of["control"])
        low, high = figures.paired_interval(list(differences))
        cells = [spread(of["league"], precision), spread(of["control"], precision)]
        cells.append(f"**{differences.mean():+.{precision}f}** ({low:+.{precision}f} to {high:+.{precision}f})")
        assert " | ".join(cells) in row
