"""The setting `device`, the place of a network's weights, resolved."""

from __future__ import annotations

import re

import torch

from warren.errors import ConfigurationError

_NAME = re.compile(r"(auto|cpu|mps|cuda)|cuda:(\d+)")


def resolve(device: str, setting: str = "device") -> torch.device:
    """Return the device of a setting: "auto" (a GPU where there is one), "cpu", "cuda", "cuda:1", "mps".

    Raises ConfigurationError, which names `setting`, for any other name and for a device that this machine lacks.
    """
    match = _NAME.fullmatch(device)
    if match is None:
        raise ConfigurationError(f"{setting}={device!r} is not a device; use auto, cpu, cuda, cuda:N or mps")
    there = available()
    if device == "auto":
        return torch.device(next(name for name in ("cuda:0", "mps", "cpu") if name in there))
    wanted = "cuda:0" if device == "cuda" else f"cuda:{int(match[2])}" if match[2] else device
    if wanted not in there:
        raise ConfigurationError(
            f"{setting}={device!r} is not there: this machine has {', '.join(there)}{_why(wanted)}; use one of "
            f"these, or {setting}=auto"
        )
    return torch.device(wanted)


def available() -> list[str]:
    """Return the devices that torch can use here: "cpu", then "cuda:0" and so on, or "mps"."""
    found = [
        "cpu",
        *(f"cuda:{index}" for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)),
    ]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _why(wanted: str) -> str:
    if wanted.startswith("cuda") and torch.version.cuda is None:
        return f" (this torch, {torch.__version__}, is built without CUDA)"
    return ""
