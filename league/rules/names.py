"""What a player may be called."""

from __future__ import annotations

import re

# Part of keys, of file and folder names and of `player@version`; hence not "." and "..".
NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}")
