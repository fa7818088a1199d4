"""Memory that a process has freed and soon needs again."""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
KEPT, LARGEST = 512 << 20, 64 << 20  # bytes that are kept; the largest block of which they consist


def keep_freed_memory() -> None:
    """Let glibc's malloc keep up to 512 MiB that are freed; other C libraries, and malloc's own variables, stay.

    By default malloc gives a large minibatch's memory back to the kernel after each pass, and the next pass waits for
    every page again. That takes a twelfth of the time of an update on images.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST)
    mallopt(M_TRIM_THRESHOLD, KEPT)
