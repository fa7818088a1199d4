"""Many calls of one service, a limited number at a time, and their results in order."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Any

from tasks.client.arguments import Args, of_item
from tasks.client.driver import Driver
from tasks.client.future import Handle
from tasks.service import Spec


def results(
    client: Driver,
    spec: Spec,
    calls: Iterable[Any],
    in_flight: int,
    send: Callable[[list[Args]], Iterable[Handle]],
) -> Iterator[Any]:
    """Yield the result for each of `calls`. However it ends, no call is left under way, except one-way calls.

    `send`: sends some of them, on `client`; it may raise after it has given the handles of those that were sent.
    """
    arguments = map(of_item, calls)
    flying: deque[Handle] = deque()
    exhausted = False
    try:
        while True:
            ended = sum(handle.ended for handle in flying)
            room = in_flight - len(flying) + ended
            if room and not exhausted:
                batch = list(itertools.islice(arguments, room))
                exhausted = len(batch) < room
                flying += send(batch) if batch else ()
            while flying and flying[0].ended:
                yield flying.popleft().outcome()
            if not flying:
                if exhausted:
                    return
                continue
            client.wait(flying[0])
    finally:
        if spec.response:
            client.cancel_all(flying)


async def aresults(
    send: Callable[[Args], asyncio.Future[Any]], calls: Iterable[Any], in_flight: int, is_one_way: Callable[[], bool]
) -> AsyncGenerator[Any, None]:
    """Yield the result for each of `calls`, as `results`, in asyncio."""
    flying: deque[asyncio.Future[Any]] = deque()
    try:
        for given in map(of_item, calls):
            if len(flying) >= in_flight:
                yield await flying.popleft()
            flying.append(send(given))
        while flying:
            yield await flying.popleft()
    finally:
        for future in () if is_one_way() else flying:
            future.cancel()
