"""The part of Redis that services need, as dictionaries: offered services, retained events, delivery counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class MemoryStore:
    """A stand-in for a redis.Redis. Nothing expires."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.values: dict[str, bytes] = {}
        self.tables: dict[str, dict[str, bytes]] = {}

    @contextmanager
    def pipeline(self, transaction: bool = True) -> Iterator[MemoryPipeline]:
        """Gather commands, which `execute` runs at once."""
        yield MemoryPipeline(self)

    def run(self, commands: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run commands without others in between."""
        with self._lock:
            return [command() for command in commands]

    def get(self, key: str) -> bytes | None:
        """See Redis, also for the methods that follow."""
        return self.values.get(key)

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.values.get(key) for key in keys]

    def set(self, key: str, value: bytes | str, nx: bool = False, ex: int | None = None) -> bool | None:
        if nx and key in self.values:
            return None
        self.values[key] = _bytes(value)
        return True

    def incr(self, key: str) -> int:
        number = int(self.values.get(key, b"0")) + 1
        self.values[key] = b"%d" % number
        return number

    def delete(self, *keys: str) -> int:
        return sum(self.values.pop(key, None) is not None for key in keys)

    def expire(self, key: str, seconds: int) -> bool:
        return True

    def hset(
        self, key: str, field: str = "", value: bytes | str = b"", mapping: Mapping[str, Any] | None = None
    ) -> int:
        given = {name: _bytes(one) for name, one in (mapping or {field: value}).items()}
        self.tables.setdefault(key, {}).update(given)
        return len(given)

    def hsetnx(self, key: str, field: str, value: bytes | str) -> bytes:
        return self.tables.setdefault(key, {}).setdefault(field, _bytes(value))

    def hget(self, key: str, field: str) -> bytes | None:
        return self.tables.get(key, {}).get(field)

    def hgetall(self, key: str) -> dict[bytes, bytes]:
        return {name.encode(): value for name, value in self.tables.get(key, {}).items()}

    def hkeys(self, key: str) -> list[bytes]:
        return [name.encode() for name in self.tables.get(key, {})]


class MemoryPipeline:
    """Commands that wait for `execute`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store, self._commands = store, list[Callable[[], Any]]()

    def __getattr__(self, name: str) -> Callable[..., None]:
        command = getattr(self._store, name)
        return lambda *args, **kwargs: self._commands.append(lambda: command(*args, **kwargs))

    def execute(self) -> list[Any]:
        """Run the commands; return what each returned."""
        commands, self._commands = self._commands, []
        return self._store.run(commands)


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
