"""Parts of a league's pictures: figures and axes at places in inches, axes of time, labels and styles of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window system, no global state
from matplotlib.figure import Figure
from numpy.typing import NDArray

DPI = 120
LONGEST = 24  # characters of a label
HEIGHT, WIDTH = 4.6, 8.0  # in, of curves
LETTER, HANDLE = 0.058, 0.5  # in: a letter of a legend; its line with the space around it
# Colours of Okabe and Ito, which nearly everybody can tell apart, in print too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
OTHERS = "#9a9a9a"


def time_unit(span: float) -> tuple[str, float]:
    """Return a unit of time in which `span` s are some tens, and its length in s."""
    for unit, seconds in (("s", 1.0), ("min", 60.0), ("h", 3600.0)):
        if span < 150.0 * seconds:
            return unit, seconds
    return "days", 86400.0


def means(
    times: NDArray[np.float64], values: NDArray[np.float64], window: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average a series over windows of `window` s; return times and values. NaN separates parts, and is kept."""
    gap = np.isnan(values)
    group = 2 * np.cumsum(gap) - gap  # even in a part, odd in a gap
    edges = np.flatnonzero((np.diff(np.floor(times / window)) != 0) | (np.diff(group) != 0)) + 1
    starts = np.concatenate([[0], edges])
    counts = np.diff(np.append(starts, len(times)))
    return np.add.reduceat(times, starts) / counts, np.add.reduceat(values, starts) / counts


def shortened(name: str) -> str:
    """Return a name as a label: a long one without its middle, since its end tells it from others."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2 - 1]}…{name[-LONGEST // 2 :]}"


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def place_of(
    figure: Figure, left: float, bottom: float, width: float, height: float
) -> tuple[float, float, float, float]:
    across, up = map(float, figure.get_size_inches())
    return left / across, bottom / up, width / across, height / up


def new_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Return new axes at a place in inches."""
    axes: Axes = figure.add_axes(place_of(figure, left, bottom, width, height))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return axes


def timeline(span: float, ylabel: str) -> tuple[Figure, Axes, float]:
    """Return (figure, axes, length in s of its unit of time) for a curve over `span` s."""
    unit, seconds = time_unit(span)
    figure = new_figure(WIDTH, HEIGHT)
    axes = new_axes(figure, 0.75, 0.55, WIDTH - 0.95, HEIGHT - 1.05)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.set_xlabel(f"time, {unit}", fontsize=9)
    axes.grid(alpha=0.25)
    axes.set_xlim(-0.01 * max(span, 1.0) / seconds, max(span, 1.0) / seconds * 1.01)
    return figure, axes, seconds


def with_legend(figure: Figure, axes: Axes, title: str) -> Figure:
    """Add a title, and a legend above `axes` with as many columns as the longest label leaves room for."""
    labels = axes.get_legend_handles_labels()[1]
    column = LETTER * max(map(len, labels), default=1) + HANDLE
    columns = max(1, min(3, int((WIDTH - 0.75) / column)))
    rows = -(-len(labels) // columns)
    axes.set_position(place_of(figure, 0.75, 0.55, WIDTH - 0.95, HEIGHT - 1.05 - 0.18 * rows))
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=columns, fontsize=8, frameon=False, borderaxespad=0.2)
    return titled(figure, title)


def foot(figure: Figure) -> tuple[float, float]:
    return 0.1 / figure.get_figwidth(), 0.08 / figure.get_figheight()


def titled(figure: Figure, title: str) -> Figure:
    figure.text(0.1 / figure.get_figwidth(), 1.0 - 0.24 / figure.get_figheight(), title, fontsize=11, fontweight="bold")
    return figure


def columns(points: Sequence[tuple[float, float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    xs, ys = np.array(points, dtype=np.float64).reshape(-1, 2).T
    return xs, ys


def marks(xs: NDArray[np.float64]) -> dict[str, Any]:
    """Return the style of a line; if it has few points, they are marked."""
    return {"linewidth": 1.5, "marker": "o" if len(xs) < 30 else "", "markersize": 3.5}
