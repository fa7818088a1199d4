"""Checks, before a run starts, of the settings for computing networks: precision, compilation and perceptrons."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator

import torch

from agents.native.library import CHOICES, lacking
from warren.processor import processor_features

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def problems(precision: str, compiled: bool, device: torch.device) -> Iterator[str]:
    """Yield why a learner on `device` cannot follow the settings `precision` and `compile`; nothing where it can."""
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
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")  # torch looks for the same
    if shutil.which(compiler) is None:
        yield (
            f"compile=true needs a C++ compiler, and there is no {compiler}; install it (apt-get install g++), name "
            "another by the environment variable CXX, or leave compile=false"
        )


def problems_of_perceptrons(choice: str, here: bool) -> Iterator[str]:
    """Yield what is wrong with the setting `perceptrons`; `here`: it is for this machine, which needs a compiler."""
    if choice not in CHOICES:
        yield f"perceptrons={choice!r} is not a choice; use {', '.join(CHOICES[:-1])} or {CHOICES[-1]}"
    elif choice == "native" and here and (why := lacking()) is not None:
        yield (
            f"perceptrons='native' needs compiled C: {why}; install a compiler (apt-get install gcc), name it by the "
            "environment variable CC, or set perceptrons=auto"
        )


def slower(choice: str) -> str | None:
    """Return one line for the user where `perceptrons=auto` means torch, since nothing could be compiled."""
    if choice != "auto" or (why := lacking()) is None:
        return None
    return f"perceptrons=auto: torch computes small networks, in twice the time of compiled C, since {why}"


def emulated(precision: str, device: torch.device) -> str | None:
    """Return one line for the user where a processor without instructions for bfloat16 has to compute in it."""
    if precision != "bfloat16" or device.type != "cpu":
        return None
    features = processor_features()
    if not features or "bf16" in features:
        return None
    return "precision=bfloat16: this processor has no instructions for it, so float32 is faster"
