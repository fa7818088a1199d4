"""The learning curve of a run folder as a picture."""

from __future__ import annotations

from pathlib import Path

from workers.config.schema import Config
from workers.learning.metrics import EVALUATIONS, read_metrics


def draw(folder: Path, config: Config) -> Path | None:
    """Draw mean return over environment steps into `learning_curve.png`; return its path, None without a point to draw.

    Evaluations, if any, are drawn beside it, with one standard deviation of their episodes.
    """
    goal = config.env.goal
    points = [p for p in read_metrics(folder) if p["mean_return"] is not None]
    if not points:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window system, no global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([p["steps"] for p in points], [p["mean_return"] for p in points], color="tab:blue", label="training")
    if goal is not None:
        axes.axhline(goal, color="tab:green", linestyle="--", linewidth=1, label=f"goal {goal:g}")
    if evaluated := read_metrics(folder, EVALUATIONS):
        steps, means, spread = ([p[key] for p in evaluated] for key in ("steps", "mean_return", "deviation"))
        axes.errorbar(steps, means, spread, color="tab:orange", marker="o", markersize=3, capsize=2, label="evaluation")
    if goal is not None or evaluated:
        axes.legend(loc="lower right")
    seconds = points[-1]["training_seconds"]
    axes.set(
        title=f"{config.env.id}, {config.sampling.value}: {points[-1]['steps']:,} steps in {seconds:.0f} s",
        xlabel="environment steps",
        ylabel=f"mean return of the last {config.env.goal_episodes} training episodes",
    )
    axes.grid(alpha=0.3)
    path = folder / "learning_curve.png"
    figure.savefig(path)
    return path
