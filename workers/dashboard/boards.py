"""The text of a game as a board: rows of single characters that a page draws as squares."""

from __future__ import annotations

import re
from typing import Any

SEPARATED = re.compile(r"(\S)(?: \S)+")


def board_of(text: str) -> dict[str, Any]:
    """Return the text, and as `board` its first block of two or more rows of equal width, or None if it has none.

    Squares may stand beside each other or be separated by blanks.
    """
    block: list[str] = []
    for line in [*(line.rstrip() for line in text.splitlines()), ""]:
        row = line.strip().replace(" ", "") if SEPARATED.fullmatch(line.strip()) else line.strip()
        if row and " " not in row and len(row) > 1 and (not block or len(row) == len(block[0])):
            block.append(row)
        elif len(block) >= 2:
            break
        else:
            block = [row] if row and " " not in row and len(row) > 1 else []
    squares = block if len(block) >= 2 and not any(":" in row for row in block) else None
    return {"text": text, "board": squares}
