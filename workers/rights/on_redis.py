"""The users of roles on Redis, as the lines of an ACL file, and as commands."""

from __future__ import annotations

import hashlib
from typing import Any

import redis

from tasks import rights
from warren import redis_client
from warren.errors import BrokerError, ConfigurationError
from workers.rights.accounts import Accounts
from workers.rights.keys import TABLE
from workers.servers.checks import check_redis, redact

OLDEST = 7  # first version with separate rights to read and to write


def acl(accounts: Accounts) -> dict[str, list[str]]:
    """Return user -> the rules of Redis's ACL, with hashes in the place of passwords.

    Raises ConfigurationError for a user of every run.
    """
    found = {}
    for user, password in accounts.passwords.items():
        known = rights.role_of(user)
        assert known is not None, user
        role, run = known
        if run is None:
            raise ConfigurationError(f"{user}: users of Redis are of one run; give --run NAME")
        found[user] = ["reset", "on", f"#{hashlib.sha256(password.encode()).hexdigest()}", *TABLE[role].rules(run)]
    return found


def lines(accounts: Accounts) -> list[str]:
    """Return the lines for an ACL file, or for redis.conf."""
    return [f"user {user} {' '.join(rules)}" for user, rules in acl(accounts).items()]


def apply(redis_url: str, accounts: Accounts) -> str:
    """Make the users, or change them; return a note for the administrator, or "". Raises BrokerError."""
    version = check_redis(redis_url)
    if version.startswith("Redis") and int(version.split()[-1].split(".")[0]) < OLDEST:
        raise BrokerError(f"Redis {redact(redis_url)} is {version}; users of roles need Redis {OLDEST}, or a Valkey")
    with redis_client.connect(redis_url) as client:
        for user, rules in acl(accounts).items():
            _try(client, redis_url, "ACL", "SETUSER", user, *rules)
        saved = _saved(client)
    return "" if saved else "Redis forgets its users at its next start: write the lines of `acl` into its redis.conf"


def remove(redis_url: str, users: list[str]) -> tuple[int, str]:
    """Delete users; return how many there were, and a note for the administrator, or "". Raises BrokerError."""
    check_redis(redis_url)
    with redis_client.connect(redis_url) as client:
        count = _try(client, redis_url, "ACL", "DELUSER", *users)
        saved = _saved(client)
    return count, "" if saved else "lines of `acl` in redis.conf make users anew at its next start: delete them there"


def _saved(client: Any) -> bool:
    try:
        client.execute_command("ACL", "SAVE")
    except redis.ResponseError:  # the server has no such file
        return False
    return True


def _try(client: Any, redis_url: str, *command: str) -> Any:
    try:
        return client.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        raise BrokerError(
            f"Redis {redact(redis_url)} does not let this user make others; give the URL of its administrator"
        ) from None
    except redis.ResponseError as error:
        raise BrokerError(f"Redis {redact(redis_url)} refuses a rule: {error}") from None
