"""Calls without an answer: published in confirm mode, kept until the broker has them, sent again when it refuses."""

from __future__ import annotations

import time
from typing import Any

from tasks.brokers import Connection
from tasks.client.future import Handle

REFUSED_FOR = 0.05  # s until a call that a full queue refused is sent again


class Casts:
    """The channel of one client's calls without an answer. `pending`: the client's calls by id."""

    def __init__(self, link: Connection, pending: dict[str, Handle]) -> None:
        self.channel_id = link.confirm(self._confirmed)
        self._pending, self._sent, self._tag = pending, dict[int, Handle](), 0

    def sent(self, handle: Handle) -> None:
        """The next message of this channel is this call."""
        self._tag += 1
        self._sent[self._tag] = handle

    def _confirmed(self, tag: int, multiple: bool, taken: bool) -> None:
        tags: Any = [tag]
        if multiple:
            tags = []
            for known in self._sent:  # in order of sending
                if known > tag:
                    break
                tags.append(known)
        for known in tags:
            handle = self._sent.pop(known, None)
            if handle is None or handle.resend_at is not None or handle._arrived:
                continue  # no queue had it: it was returned before it was confirmed
            if taken:
                self._pending.pop(handle.id, None)
                handle.settle()
            else:
                handle.resend_at = time.monotonic() + REFUSED_FOR
