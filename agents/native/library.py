"""The compiled library of perceptrons, and the choice between it and torch."""

from __future__ import annotations

import ctypes
from pathlib import Path

from warren.compiled import Compiled

CHOICES = ("auto", "native", "torch")  # auto: native where there is a compiler, or a library that one has built
_NUMBERS = ("work_size", "kept_size", "gradient_size", "kinds_size", "evaluate", "whole_size", "find_kinds")
COMPILED = Compiled(
    Path(__file__).with_name("native.c"),
    dict.fromkeys(_NUMBERS, ctypes.c_int64)
    | dict.fromkeys(("forward", "backward", "collect", "act", "act_gaussian"))
    | dict.fromkeys(("learn", "learn_whole", "sum_from_the_end", "scale_images", "scale_images_to_halves")),
)
_choice = "auto"


def choose(choice: str) -> None:
    """Let this process compute perceptrons as `choice`, of CHOICES, says."""
    global _choice
    _choice = choice


def library() -> ctypes.CDLL | None:
    """Return the library, which the first call of all processes compiles; None where torch has to compute."""
    return None if _choice == "torch" else COMPILED.library()


def lacking() -> str | None:
    """Return the reason why there is no library, as a clause; None where there is one."""
    return COMPILED.lacking()
