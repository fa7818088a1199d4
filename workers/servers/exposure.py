"""Private servers that other machines may reach: only when asked, and only with a password from the environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from warren.errors import ConfigurationError
from workers.servers.ports import LOOPBACK

PASSWORD_VARIABLE = "WARREN_PASSWORD"
USER = "warren"
BROKER_PORT, REDIS_PORT = 5672, 6379  # fixed, as other machines have to know them
MODES = ("private", "install", "embedded")
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{16,}")  # needs no quoting in a URL or a configuration file


@dataclass(frozen=True)
class OpenAddress:
    """An address to listen at besides loopback, and the password for clients there."""

    address: str
    password: str = field(repr=False)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return all addresses to listen at; an unspecified address (0.0.0.0) includes loopback."""
        return (self.address,) if ipaddress.ip_address(self.address).is_unspecified else (LOOPBACK, self.address)

    def invitation(self, kind: str, broker_port: int, redis_port: int) -> str:
        """Return the settings for other machines as text; it names the password's variable, never the password."""
        shown = f"${PASSWORD_VARIABLE}"
        redis = f"redis://default:{shown}@THIS_HOST:{redis_port}"
        broker = f"amqp://{USER}:{shown}@THIS_HOST:{broker_port}/%2F" if kind == "rabbitmq" else f"{redis}/1"
        return f"other machines: WARREN_BROKER_URL={broker} WARREN_REDIS_URL={redis}/0"


def open_address(address: str, mode: str, environment: Mapping[str, str]) -> OpenAddress:
    """Return the address to open, with its password. Raises ConfigurationError with all problems."""
    problems = []
    try:
        if ipaddress.ip_address(address).version != 4:
            problems.append(f"listen: {address} is not an IPv4 address; use 0.0.0.0 for all of this machine's")
    except ValueError:
        problems.append(f"listen: {address!r} is not an address; use 0.0.0.0 for all of this machine's, or one of them")
    if mode not in MODES:
        problems.append(f"listen: broker={mode} may take servers that run already; use broker=private")
    password = environment.get(PASSWORD_VARIABLE, "")
    if not _PASSWORD.fullmatch(password):
        problems.append(
            f"listen: {PASSWORD_VARIABLE} in the environment has to hold a password of at least 16 letters, digits, "
            "'-' and '_', which other machines then use"
        )
    if problems:
        raise ConfigurationError(problems)
    return OpenAddress(address, password)
