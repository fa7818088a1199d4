"""Arguments that the commands of stand-ins share."""

from __future__ import annotations

import argparse
from pathlib import Path

from warren.errors import ConfigurationError


def of_server(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the stand-ins that serve."""
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--tcp-port", type=int, help="of the raw form; left out, it is not served")
    parser.add_argument("--network", default="{}", help="the network's settings, as JSON")


def given(option: str, text: str) -> bytes:
    """Return the bytes that an option stands for: its text, or with @FILE the file's. Raises ConfigurationError."""
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{option} {text}: the file cannot be read ({error.strerror}); name another, or give the text itself"
        ) from None
