"""Flower's login, which is required at an address that other machines reach."""

from __future__ import annotations

import os

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def missing_login(address: str) -> str | None:
    """Return the error if other machines reach Flower at `address` without a login, else None.

    In a container `address` is the container's; WARREN_FLOWER_PUBLISHED is the address at which its port is published.
    """
    reached = os.environ.get("WARREN_FLOWER_PUBLISHED") or address
    if reached in LOOPBACK or os.environ.get("FLOWER_BASIC_AUTH"):
        return None
    return (
        f"flower_address: at {reached} every user that reaches this machine could see the run and end its workers; "
        "set FLOWER_BASIC_AUTH=NAME:PASSWORD in the environment, or leave flower_address=127.0.0.1"
    )
