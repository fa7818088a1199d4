"""Private servers that other machines may reach: only when asked, and only with a password from the environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from warren.errors import ConfigurationError
from workers.servers.process import LOOPBACK

PASSWORD_VARIABLE = "WARREN_PASSWORD"
USER = "warren"
BROKER_PORT, REDIS_PORT = 5672, 6379  # others have to know them
MODES = ("private", "install", "embedded")
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{16,}")  # so that it stands in a URL and in a configuration file as it is


@dataclass(frozen=True)
class OpenAddress:
    """An address to listen at besides loopback, and the password of who comes in there."""

    address: str
    password: str = field(repr=False)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that a server listens at; an unspecified address (0.0.0.0) holds loopback."""
        return (self.address,) if ipaddress.ip_address(self.address).is_unspecified else (LOOPBACK, self.address)

    def invitation(self, kind: str, broker_port: int, redis_port: int) -> str:
        """What to set on other machines; names the password's variable, never the password."""
        shown = f"${PASSWORD_VARIABLE}"
        redis = f"redis://default:{shown}@THIS_HOST:{redis_port}"
        broker = f"amqp://{USER}:{shown}@THIS_HOST:{broker_port}/%2F" if kind == "rabbitmq" else f"{redis}/1"
        return f"other machines: WARREN_BROKER_URL={broker} WARREN_REDIS_URL={redis}/0"


def open_address(address: str, mode: str, environment: Mapping[str, str]) -> OpenAddress:
    """An address to be open at. Raises ConfigurationError with all that is missing for it."""
    problems = []
    try:
        if ipaddress.ip_address(address).version != 4:
            problems.append(f"listen: {address} is no IPv4 address; use 0.0.0.0 for all of this machine's")
    except ValueError:
        problems.append(f"listen: {address!r} is no address; use 0.0.0.0 for all of this machine's, or one of them")
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
