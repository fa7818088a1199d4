"""The end of every benchmark: one JSON object on the last line, with the machine's load and limits."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from typing import Any

from benchmarks.apparatus.limits import limits


def finish(benchmark: str, figures: dict[str, Any]) -> None:
    """Print the figures as the last line."""
    machine = {
        "cores": os.cpu_count(),
        "load_1_5_15_minutes": [round(load, 2) for load in os.getloadavg()],
        **limits(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("celery", "kombu", "torch", "numpy")},
    }
    print(json.dumps({"benchmark": benchmark, **figures, "machine": machine}), flush=True)
