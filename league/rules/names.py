"""The names that a player may have."""

from __future__ import annotations

import re

# Part of keys, of file and folder names and of `player@version`; hence not "." and "..".
ALLOWED = "1 to 100 of A-Z, a-z, 0-9, '_', '-', '.', and neither '.' nor '..'"
NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}")
