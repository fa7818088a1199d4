"""The modes of `broker=`: the ways to a server that each tries, and the URLs that it takes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from warren.environment import secret
from warren.errors import ConfigurationError, UnknownName
from workers.servers.checks import kind_of
from workers.servers.running import BROKER_VARIABLE, REDIS_VARIABLE

OF_A_RUN = "WARREN_SERVERS"  # "private": the URLs in the environment are those of one run's own servers

BROKER_STEPS = {
    "auto": ("given", "listening", "private", "installed", "embedded"),
    "external": ("given",),
    "local": ("listening",),
    "private": ("private",),
    "install": ("installed",),
    "embedded": ("embedded",),
}
# The embedded server is a full Redis, so Redis is never installed.
REDIS_STEPS = {
    "auto": ("given", "listening", "private", "embedded"),
    "external": ("given",),
    "local": ("listening",),
    "private": ("private", "embedded"),
    "install": ("private",),
    "embedded": ("embedded",),
}
PRIVATE = ("private", "embedded")  # steps whose server starts with the folder's data
MODES = tuple(BROKER_STEPS)


def given_urls(
    mode: str, broker_url: str | None, redis_url: str | None, environment: Mapping[str, str] = os.environ
) -> tuple[str | None, str | None]:
    """Return the URLs of broker and Redis, given here or in the environment, or None. Raises ConfigurationError."""
    if mode not in BROKER_STEPS:
        raise UnknownName("broker mode", mode, MODES)
    # Private servers, as `workers.servers env` exports them, end with their run: they are used only on request.
    if mode == "external" or (mode == "auto" and environment.get(OF_A_RUN) != "private"):
        broker_url = broker_url or secret(BROKER_VARIABLE, environment)
        redis_url = redis_url or secret(REDIS_VARIABLE, environment)
    elif mode != "auto" and (broker_url or redis_url):
        raise ConfigurationError(f"broker={mode} takes no URLs, but one is given; use broker=external, or leave it out")
    if broker_url and not redis_url and kind_of(broker_url) == "redis":
        redis_url = broker_url
    if mode == "external":
        wanted = (("broker", broker_url, BROKER_VARIABLE), ("Redis", redis_url, REDIS_VARIABLE))
        if problems := [
            f"broker=external needs a {name} URL; set {variable}" for name, url, variable in wanted if not url
        ]:
            raise ConfigurationError(problems)
    return broker_url, redis_url
