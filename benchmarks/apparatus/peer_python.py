"""The Python of an environment in which a peer is installed."""

from __future__ import annotations

from pathlib import Path


def peer_python(name: str, given: str | None, folder: Path | None, place: str) -> str | None:
    """Return the Python of a peer's environment; None, with a line that says so, if there is none."""
    python = given or (None if folder is None else str(folder / place / "bin" / "python"))
    if python is None:
        print(f"{name} skipped: no --peers DIR")
    elif not Path(python).exists():
        print(f"{name} skipped: {python} does not exist")
    else:
        return python
    return None
