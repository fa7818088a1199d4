"""The garbage collector's full collections, which stop a process for a fifth of a second."""

from __future__ import annotations

import gc


def spare_loaded() -> None:
    """Exclude all present objects from later collections; called once a process has loaded what it needs to serve.

    torch and its dependencies are half a million objects. A full collection would visit all of them, and a gateway
    under load makes one each second: 0.2 s during which no thread computes and every game waits.
    """
    gc.collect()
    gc.freeze()


def spare_inherited() -> None:
    """Exclude all present objects, unless a process from which this one was forked has done so: a role's first step."""
    if not gc.get_freeze_count():
        spare_loaded()
