"""Learning curves as a picture: those of all seeds, with a colour per system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

Curve = Sequence[tuple[int, float]]  # environment steps, mean return
COLORS = ("tab:blue", "tab:orange", "tab:gray", "tab:purple", "tab:red")


def draw(
    path: Path,
    title: str,
    curves: Mapping[str, Sequence[Curve]],
    goal: float | None,
    returns: str,
    steps: str = "environment steps",
) -> None:
    """Write `curves`, system -> a curve per seed, to `path` as a PNG; `returns` and `steps` name the axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window system, no global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for color, (name, runs) in zip(COLORS, curves.items(), strict=False):
        for index, run in enumerate(runs):
            label = f"{name}, {len(runs)} seed{'s' if len(runs) > 1 else ''}" if index == 0 else None
            axes.plot([p[0] for p in run], [p[1] for p in run], color=color, alpha=0.7, linewidth=1.3, label=label)
    if goal is not None:
        axes.axhline(goal, color="tab:green", linestyle="--", linewidth=1, label=f"goal: {goal:g}")
    axes.set(title=title, xlabel=steps, ylabel=returns)
    axes.legend(loc="best")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
