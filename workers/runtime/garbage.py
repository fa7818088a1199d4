"""The garbage collector's full collections, in processes for whose answers others wait."""

from __future__ import annotations

import gc


def spare_loaded() -> None:
    """Exclude all present objects from later collections; called once a process has loaded what it needs to serve.

    torch and its dependencies are half a million objects. A full collection would visit all of them, and a gateway
    under load makes one each second: 0.2 s during which no thread computes and every game waits.
    """
    gc.collect()
    gc.freeze()
