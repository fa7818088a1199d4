"""Check the login of Flower: an address that other machines reach needs one."""

from __future__ import annotations

import os

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def missing_login(address: str) -> str | None:
    """Return what is wrong with Flower at `address`: others reach it, and it has no login; None where that is right.

    In a container the address is that of the container; WARREN_FLOWER_PUBLISHED is where its port is published.
    """
    reached = os.environ.get("WARREN_FLOWER_PUBLISHED") or address
    if reached in LOOPBACK or os.environ.get("FLOWER_BASIC_AUTH"):
        return None
    return (
        f"flower_address: at {reached} everybody who reaches this machine would see the run and could end its workers; "
        "set FLOWER_BASIC_AUTH=NAME:PASSWORD in the environment, or leave flower_address=127.0.0.1"
    )
