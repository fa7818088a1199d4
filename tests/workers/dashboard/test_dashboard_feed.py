"""Tests of the dashboard's streams: one look at a run for all pages that listen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from workers.dashboard import feed


def test_a_look_that_fails_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "EVERY", 0.0)
    found: list[Any] = [{"moved": 2}, ValueError("no number"), {"moved": 1}]

    def look() -> dict[str, Any] | None:
        one = found.pop() if found else None
        if isinstance(one, Exception):
            raise one
        return one

    async def listened() -> list[bytes]:
        stream = feed.Feed(look, lambda: {"hello": ""}, lambda message: repr(message).encode()).listen()
        messages = [await anext(stream) for _ in range(3)]
        await stream.aclose()
        return messages

    assert asyncio.run(listened())[1:] == [b"{'moved': 1}", b"{'moved': 2}"]
