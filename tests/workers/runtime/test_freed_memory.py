"""Memory that malloc keeps: pages of blocks that are freed and needed again are faulted in once."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource, sys
from workers.runtime.freed_memory import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
libc.prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a huge page would count as one fault
SIZE, PAGE = 40 << 20, resource.getpagesize()

def used():
    block = libc.malloc(SIZE)
    ctypes.memset(block, 1, SIZE)
    libc.free(block)

if sys.argv[1:] == ["kept"]:
    keep_freed_memory()
used()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    used()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * PAGE // SIZE)
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc has settings only in glibc")


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ([], {}, 4),
        (["kept"], {}, 0),
        (["kept"], {"MALLOC_TRIM_THRESHOLD_": "65536"}, 4),
        (["kept"], {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=65536"}, 4),
    ],
    ids=["malloc's default", "kept", "the user's own variable", "the user's own tunable"],
)
def test_freed_blocks_are_faulted_in_again_only_where_malloc_gave_them_back(
    words: list[str], variables: dict[str, str], expected: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *words],
        env={name: value for name, value in os.environ.items() if "MALLOC" not in name} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == expected, done.stderr
