"""Threads for work that an event loop must not wait for. They are the process's own: a loop's default executor may be
full of its user's work, and ends with the loop, while these keep their connections to Redis.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 32  # at most; each is started when it is first needed

_threads: list[ThreadPoolExecutor] = []


def submit(function: Callable[..., T], *args: Any) -> Future[T]:
    """Run `function` in a thread."""
    if not _threads:
        _threads.append(ThreadPoolExecutor(THREADS, thread_name_prefix="calls"))
    return _threads[0].submit(function, *args)


def run(loop: asyncio.AbstractEventLoop, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Run `function` in a thread; return a future of `loop` for its result."""
    return asyncio.wrap_future(submit(function, *args), loop=loop)


os.register_at_fork(after_in_child=_threads.clear)  # a child has none of its parent's threads
