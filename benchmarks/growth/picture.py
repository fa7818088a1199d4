"""A picture of the cost of a step: `python -m benchmarks.growth.picture PRINTED PICTURE.png`, from growth's output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

ROLES = {"actor": "actors", "learner": "learner", "rabbitmq": "RabbitMQ", "redis": "Redis", "train": "launcher"}
TITLES = {
    "actors": "actors that share the work",
    "environments": "environments of each of two actors",
    "model": "MB of weights",
    "learners": "learners",
}


def draw(figures: dict[str, Any], picture: Path) -> None:
    """Draw one panel per part, us of a core that a step costs each role."""
    parts = [part for part in TITLES if part in figures]
    shown, panels = plt.subplots(1, len(parts), figsize=(4.2 * len(parts), 3.4), squeeze=False)
    for part, panel in zip(parts, panels[0], strict=True):
        table = figures[part]["us_a_step"]
        for role, name in ROLES.items():
            panel.plot([float(size) for size in table], [table[size].get(role) for size in table], "o-", label=name)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xticks([float(size) for size in table], list(table))
        panel.minorticks_off()
        panel.set_xlabel(TITLES[part])
    panels[0][0].set_ylabel("us of a core a step")
    panels[0][0].legend(fontsize=7)
    shown.tight_layout()
    shown.savefig(picture, dpi=110)


if __name__ == "__main__":
    printed = (json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines() if line.startswith("{"))
    draw({name: value for one in printed for name, value in one.items()}, Path(sys.argv[2]))
