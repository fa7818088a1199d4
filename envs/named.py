"""Names of a source's environments as people type them: "space_invaders", "SpaceInvaders", "spaceinvaders" are one."""

from __future__ import annotations

from collections.abc import Iterable

from warren.errors import UnknownName


def pick(source: str, name: str, ids: dict[str, str]) -> str:
    """Return the library's id for `name`; `ids`: name to show -> the library's id. Raises UnknownName."""
    found = {plain(shown): library for shown, library in ids.items()}
    try:
        return found[plain(name)]
    except KeyError:
        raise UnknownName("environment", f"{source}:{name}", [f"{source}:{shown}" for shown in ids]) from None


def plain(name: str) -> str:
    """Return `name` in lower case, without "_" and "-"."""
    return name.lower().replace("_", "").replace("-", "")


def snake(words: str) -> str:
    """Return "SpaceInvaders" as "space_invaders"."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")


def shown(ids: Iterable[str], prefix: str, suffix: str) -> dict[str, str]:
    """Map the shown name to the id, for the ids that are `prefix` + words + `suffix`."""
    return {
        snake(full[len(prefix) : -len(suffix)]): full
        for full in ids
        if full.startswith(prefix) and full.endswith(suffix)
    }
