"""Tables for a terminal of any width, and for a file or a pipe, where nothing is cut."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

LEAST = 4  # characters of a text that is cut
UNBOUNDED = 10_000  # characters of a line where no terminal cuts it


def output() -> Console:
    """Return a console that writes to standard output: as wide as the terminal there, unbounded without one."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED)


def table(
    columns: Mapping[str, Sequence[str | Text]],
    width: int,
    spare: Iterable[str] = (),
    styles: Sequence[str | None] | None = None,
    *,
    caption: str = "",
    padding: int = 2,
) -> Table:
    """Return a table of `columns` by heading; those whose heading begins with ">" are aligned to the right.

    `width`: characters of a line; `spare` columns are left out, one after the other, until the rest fits. Then text is
    cut and figures are not: half a figure would be another one.
    """
    shown = dict(columns)
    longest = {name: max(len(cell) for cell in [name, *cells]) + padding for name, cells in shown.items()}
    for heading in spare:
        if sum(longest[name] for name in shown) > width:
            shown.pop(heading)
    texts = [name for name in shown if not name.startswith(">")]
    for _ in range(sum(longest[name] for name in shown) - width):
        widest = max(texts, key=longest.__getitem__, default="")
        if longest.get(widest, 0) <= LEAST + padding:
            break
        longest[widest] -= 1
    made = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, padding, 0, 0))
    for heading in shown:
        justify: JustifyMethod = "right" if heading.startswith(">") else "left"
        made.add_column(heading.lstrip(">"), justify=justify, no_wrap=True, max_width=longest[heading] - padding)
    for place, cells in enumerate(zip(*shown.values(), strict=True)):
        made.add_row(*cells, style=styles[place] if styles else None)
    if caption:
        made.caption, made.caption_justify = caption, "left"
    return made
