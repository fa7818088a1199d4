"""The garbage collector's full collections, in processes whose answers others wait for."""

from __future__ import annotations

import gc


def spare_loaded() -> None:
    """Leave out of later collections all that lives now, once a process has loaded what it serves with.

    torch and what comes with it are half a million objects. A full collection, of which a gateway under load makes one
    each second, visits all of them: 0.2 s during which no thread computes and every game waits.
    """
    gc.collect()
    gc.freeze()
