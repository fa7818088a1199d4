"""What a player may be called."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")  # part of keys, of file names and of `player@version`
