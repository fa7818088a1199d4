"""The features of this machine's processor, and the levels for which C can be compiled on another machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

_V2 = frozenset(("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"))
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
# Levels of each architecture, the best first, as -march names them: the features that one needs, as Linux names them.
LEVELS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2, "x86-64": frozenset()},
    "aarch64": {"armv8-a": frozenset()},
}


def processor_features() -> str:
    """Return the line in which Linux names the features of this machine's processor; "" on other systems."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8", errors="replace").splitlines() if known.exists() else []
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


def levels_here() -> list[str]:
    """Return the levels that this machine's processor has, the best first."""
    has = {*processor_features().split()}
    return [level for level, needed in LEVELS.get(platform.machine(), {}).items() if needed <= has]
