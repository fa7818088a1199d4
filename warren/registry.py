"""A table from names to objects whose error lists near names: environments, networks, algorithms, players."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from warren.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """A table from names to objects of one kind; `kind` is the noun in errors ("algorithm", "environment")."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enters its object under `name`. Raises ValueError for a name already taken."""

        def enter(thing: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is already registered")
            self._entries[name] = thing
            return thing

        return enter

    def __getitem__(self, name: str) -> T:
        """Return the object called `name`. Raises UnknownName, which lists near names."""
        try:
            return self._entries[name]
        except (KeyError, TypeError):  # a list from a file cannot be hashed
            raise UnknownName(self.kind, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))
