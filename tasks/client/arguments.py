"""The arguments of one call among many, where they are more than one value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warren.errors import ConfigurationError


class Args:
    """Arguments as a call has them: `solver.map("actor.act", [Args(state, greedy=True), Args((1, 2))])`."""

    __slots__ = ("args", "kwargs")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"Args({', '.join(given)})"


def of_item(item: Any) -> Args:
    """Return the arguments that an item of a map stands for: Args, a tuple of several, or one value."""
    if isinstance(item, Args):
        return item
    return Args(*item) if isinstance(item, tuple) else Args(item)


def of_call(given: Iterable[Any]) -> Args:
    """Return the arguments that follow the name of a service in a chord: Args alone, or values."""
    values = tuple(given)
    return values[0] if len(values) == 1 and isinstance(values[0], Args) else Args(*values)


def whole(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call whose first is Args. Raises ConfigurationError for others beside it."""
    if len(args) > 1 or kwargs:
        raise ConfigurationError("a call takes Args(...) alone, or arguments: give all of them within Args")
    return args[0].args, args[0].kwargs
