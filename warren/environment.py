"""Settings from the environment that hold secrets: in a variable, or in a file that a variable names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from warren.errors import ConfigurationError


def secret(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the value of the variable `name`, else the content of the file that NAME_FILE names, else None.

    In a file a secret stays out of `docker inspect` and of /proc. Raises ConfigurationError when the file cannot be
    read or is empty.
    """
    if value := environment.get(name):
        return value
    if not (path := environment.get(f"{name}_FILE")):
        return None
    try:
        content = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"{name}_FILE: {path} cannot be read: {error.strerror}") from None
    if not content:
        raise ConfigurationError(f"{name}_FILE: {path} is empty; write the URL into it")
    return content
