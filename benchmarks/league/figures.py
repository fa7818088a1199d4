"""Figures of the strength benchmark from its curves: medians over the seeds, and paired intervals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.league.sides import CONTROL, LEAGUE, SELF_PLAY

Line = dict[str, Any]
PEERS = ("nfsp", "psro", "psro_nash")  # on Leduc
SEARCHED = ("search_share", "main_search_share", "light_search_share", "main_light_search_share")  # see search.py
CONFIDENCE = 0.95
SHORT = {"spinning_top": "spinning"}


def read(path: Path) -> list[Line]:
    """Return the lines of a file of curves, in order; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def exploitability(line: Line) -> float | None:
    """Return a line's figure for its side: of a league's mixture, of self-play's policy, or a peer's own."""
    name = "exploitability" if line["side"] in PEERS else "main_agent" if line["side"] == SELF_PLAY else "nash_mixture"
    found = line.get(name)
    return None if found is None else float(found)


def worth(line: Line) -> float | None:
    """Return the gain of best answers to a side, from its last line: exact, or found by learned ones."""
    found = exploitability(line)
    return line.get("response") if found is None else found


def by_run(lines: Iterable[Line]) -> dict[tuple[str, int], list[Line]]:
    """Return (side, seed) -> its curve."""
    runs: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        if "seconds" in line:
            runs.setdefault((line["side"], line["seed"]), []).append(line)
    return runs


def named(line: Line) -> str | None:
    """Return what the settings of a run, or its updates, were called; None: they are those of conf/league."""
    found = line.get("settings", line.get("updates"))
    return None if found is None else str(found)


def conditions(line: Line) -> str:
    """Return a run's settings, budget and clock, as far as its lines say them."""
    limits = f"{line['budget']:g} ({line['clock']})" if line.get("budget") is not None else None
    return ", ".join(part for part in (named(line), limits) if part is not None) or "unnamed"


def chosen(lines: Iterable[Line], seeds: range | None, settings: str | None) -> list[Line]:
    """Return the lines of these seeds and settings; None: of all. Sides that lack such settings have unnamed ones."""
    of_seeds = [line for line in lines if seeds is None or line.get("seed") in seeds]
    if settings is None:
        return of_seeds
    having = {line.get("side") for line in of_seeds if named(line) == settings}
    return [line for line in of_seeds if named(line) == (settings if line.get("side") in having else None)]


def mixed(lines: Iterable[Line]) -> list[str]:
    """Return a sentence for each side whose runs are not of one kind, so that their figures would be mixed up."""
    kinds: dict[str, set[str]] = {}
    for line in lines:
        if "seconds" in line:
            kinds.setdefault(line["side"], set()).add(conditions(line))
    return [
        f"{side} has runs of {len(found)} kinds: {'; '.join(sorted(found))}"
        for side, found in kinds.items()
        if len(found) > 1
    ]


def late(curve: Sequence[Line]) -> list[float | None]:
    """Return the exploitability over the second half of a curve's time."""
    half = curve[-1]["seconds"] / 2
    return [exploitability(line) for line in curve if line["seconds"] >= half]


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None without any."""
    known = [float(value) for value in values if value is not None]
    return statistics.median(known) if known else None


def pairs(lines: Iterable[Line], of: Callable[[Line], float | None]) -> list[tuple[float, float]]:
    """Return `of` the last lines of (league, control), seed by seed, if both are known."""
    ends = {which: of(curve[-1]) for which, curve in by_run(lines).items()}
    found = [(ends[LEAGUE, seed], ends.get((CONTROL, seed))) for side, seed in sorted(ends) if side == LEAGUE]
    return [(league, control) for league, control in found if league is not None and control is not None]


def paired_interval(differences: Sequence[float], confidence: float = CONFIDENCE) -> list[float] | None:
    """Return the bounds of the mean of paired differences by Student's t; None for fewer than two."""
    if len(differences) < 2:
        return None
    mean, error = float(np.mean(differences)), float(stats.sem(differences))
    reach = error * float(stats.t.ppf(0.5 + confidence / 2.0, len(differences) - 1))
    return [round(mean - reach, 5), round(mean + reach, 5)]


def summary(game: str, lines: Sequence[Line]) -> dict[str, Any]:
    """Return medians over the seeds, each seed's own figure, and how the league differs from its control.

    The figure of a league, its control or a peer is that of its end. Self-play cycles and may be anywhere when it
    stops, so its figure is the median over the second half of its time. NAME_interval holds the mean of league minus
    control, paired by seed, with a confidence of 95 %: if both bounds are below 0 the league is less exploitable. In
    games without an exact figure it is about the gain of learned best responses. NAME_main_agent_interval is about the
    last iterates, NAME_least_win_rate_interval and NAME_cycles_interval about those.
    """
    runs, short = by_run(lines), SHORT.get(game, game)
    figures: dict[str, Any] = {}

    def add(name: str, of: str, worth: Callable[[list[Line]], float | None]) -> None:
        found = [worth(curve) for (side, _), curve in sorted(runs.items()) if side == of]
        values = [round(value, 4) for value in found if value is not None]
        if values:
            figures[f"{short}_{name}"] = round(statistics.median(values), 4)
            figures[f"{short}_{name}_by_seed"] = values

    for side in dict.fromkeys(side for side, _ in runs):
        if side == SELF_PLAY:
            add(side, side, lambda curve: median(late(curve)))
        else:
            add(side, side, lambda curve: exploitability(curve[-1]))
        add(f"{side}_at_start", side, lambda curve: exploitability(curve[0]))
        if side not in (SELF_PLAY, *PEERS):
            own = "" if side == LEAGUE else f"{side}_"
            add(f"{own}main_agent", side, lambda curve: curve[-1].get("main_agent"))
            add(f"{own}least_win_rate", side, lambda curve: curve[-1].get("least_win_rate"))
            add(f"{own}response", side, lambda curve: curve[-1].get("response"))
            add(f"{own}cycles", side, lambda curve: curve[-1].get("cycles"))
            for name in (
                "exploiters_share", "others_share",
                "mixture_with_exploiters", "mixture_without_exploiters", "mixture_of_players",
                *SEARCHED,
            ):  # fmt: skip
                add(f"{own}{name}", side, lambda curve, name=name: curve[-1].get(name))
    compared: dict[str, Callable[[Line], float | None]] = {"interval": worth}
    for name in ("main_agent", "least_win_rate", "cycles"):
        compared[f"{name}_interval"] = methodcaller("get", name)
    for name, of in compared.items():
        differences = [league - control for league, control in pairs(lines, of)]
        if (interval := paired_interval(differences)) is not None:
            figures[f"{short}_{name}"] = interval
    relative = [line["relative_performance"] for line in lines if "relative_performance" in line]
    if relative:
        figures[f"{short}_relative_performance"] = round(statistics.mean(relative), 5)
        figures[f"{short}_relative_performance_interval"] = paired_interval(relative)
    return figures
