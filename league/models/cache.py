"""Models that this process has seen, the least used dropped first; models do not change, so none is fetched twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """An entry of the cache, with the bytes of its weights."""

    @property
    def data(self) -> bytes:
        """The bytes of the weights."""


S = TypeVar("S", bound=Sized)


class ByteCache(Generic[S]):
    """Up to `bound` bytes of weights by key; thread-safe. A bound of 0 keeps nothing."""

    def __init__(self, bound: int) -> None:
        self.bound, self.held = bound, 0
        self._entries: OrderedDict[str, S] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> S | None:
        """Return the entry and count it as used; None if it is not cached."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: str, entry: S) -> None:
        """Keep an entry, and drop the least used ones beyond the bound; an entry larger than the bound is not kept."""
        with self._lock:
            if key in self._entries or len(entry.data) > self.bound:
                return
            self._entries[key] = entry
            self.held += len(entry.data)
            while self.held > self.bound:
                _, dropped = self._entries.popitem(last=False)
                self.held -= len(dropped.data)

    def drop(self, key: str) -> None:
        """Forget one entry."""
        with self._lock:
            if key in self._entries:
                self.held -= len(self._entries.pop(key).data)
