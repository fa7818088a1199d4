"""Common parts of a league's pictures."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from workers.evaluation.canvas import new_axes, new_figure, with_legend


@pytest.mark.parametrize("label", ["main", "gain of the mixture's best member: 0.000326 to 0.000326", "long " * 18])
def test_a_legend_ends_within_its_figure_however_long_its_labels_are(label: str) -> None:
    figure = new_figure(8.0, 4.6)
    axes = new_axes(figure, 0.75, 0.55, 7.05, 3.55)
    for number in range(5):
        axes.plot([0, 1], [0, number], label=f"{label} {number}")
    with_legend(figure, axes, "A title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = axes.get_legend().get_window_extent()
    assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
