"""Findings of a check, printed one per line as they are found: ok, a note (a run copes with it), or a problem."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from warren.errors import WarrenError

PROBLEMS = 3  # exit status of the process that plays, if it has found problems
WIDTH = 118
_MARGIN = 22


class Report:
    """Counts and prints findings. `problems` and `notes` hold their texts."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []

    def ok(self, check: str, text: str) -> None:
        """Report that nothing is wrong; `text` says what was seen."""
        self._print("ok", check, text)

    def note(self, check: str, text: str) -> None:
        """Report something that a run copes with."""
        self.notes.append(text)
        self._print("note", check, text)

    def problem(self, check: str, text: str) -> None:
        """Report a fault by which a run would fail, or would learn from something else than was meant."""
        self.problems.append(text)
        self._print("problem", check, text)

    @contextmanager
    def checking(self, check: str) -> Iterator[None]:
        """Report each of Warren's errors that the block raises as a problem."""
        try:
            yield
        except WarrenError as error:
            for problem in getattr(error, "problems", [str(error)]):
                self.problem(check, problem)

    def summary(self) -> str:
        """Return the last line of the report."""
        notes = f" ({_count(len(self.notes), 'note')})" if self.notes else ""
        return f"{_count(len(self.problems), 'problem') if self.problems else 'no problems'}{notes}"

    def _print(self, kind: str, check: str, text: str) -> None:
        first = f"{kind:<8} {check:<12} "
        lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * _MARGIN)
        print("\n".join(lines), flush=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
