"""Checks of how a learner computes its network, in which precision and compiled or not, before a run starts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator

import torch

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def problems(precision: str, compiled: bool, device: torch.device) -> Iterator[str]:
    """Yield what keeps a learner on `device` from the settings `precision` and `compile`; nothing where they hold."""
    if precision not in PRECISIONS:
        yield f"precision={precision!r} is not a precision; use {' or '.join(PRECISIONS)}"
    elif precision == "bfloat16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        yield (
            f"precision='bfloat16' is not a precision that {torch.cuda.get_device_name(device)} computes in; use "
            "precision=float32, or device=cpu"
        )
    if not compiled:
        return
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            yield (
                "compile=true needs Triton for a GPU, which is not installed; install triton, or leave compile=false"
            )
        return
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")  # as torch looks for it
    if shutil.which(compiler) is None:
        yield (
            f"compile=true needs a C++ compiler, and there is no {compiler}; install it (apt-get install g++), name "
            "another by the environment variable CXX, or leave compile=false"
        )
