"""The users of roles on RabbitMQ, as definitions that it imports: by its management API, or by rabbitmqctl."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import subprocess
import urllib.error
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tasks import rights
from warren.errors import BrokerError, ConfigurationError
from workers.doctor.management import management_api
from workers.doctor.rabbitmqctl import CONTROL_TIMEOUT, words_of
from workers.rights.accounts import Accounts

# Takes the words of a rabbitmqctl command and its standard input; returns its exit status and its output.
Control = Callable[[list[str], str], tuple[int, str]]


def definitions(accounts: Accounts, vhost: str) -> dict[str, Any]:
    """Return users and permissions as RabbitMQ imports them, with hashes in the place of passwords."""
    users, permissions = [], []
    for user, password in accounts.passwords.items():
        found = rights.role_of(user)
        assert found is not None, user
        role, run = found
        users.append({"name": user, "tags": rights.TABLE[role].tag, **hashed(password)})
        permissions.append({"user": user, "vhost": vhost, **rights.TABLE[role].patterns(run)})
    return {"users": users, "permissions": permissions}


def hashed(password: str) -> dict[str, str]:
    """Return the fields of a user's definition that hold its password's hash."""
    salt = secrets.token_bytes(4)
    digest = hashlib.sha256(salt + password.encode()).digest()
    return {
        "password_hash": base64.b64encode(salt + digest).decode(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
    }


class ByManagement:
    """The management API of a broker, used as the URL's user, which has to be an administrator."""

    def __init__(self, broker_url: str, management_url: str) -> None:
        self._ask, self._url = management_api(broker_url, management_url), management_url

    def apply(self, wanted: dict[str, Any]) -> None:
        """Make the users, or change them. Raises BrokerError."""
        self._try("definitions", "POST", wanted)

    def remove(self, users: list[str]) -> int:
        """Delete users; return how many there were. Raises BrokerError."""
        return sum(self._try(f"users/{quote(user, safe='')}", "DELETE", None, 404) for user in users)

    def _try(self, path: str, method: str, body: Any, passed_over: int = 0) -> bool:
        """Send a request; return False if its answer is the status `passed_over`. Raises BrokerError."""
        try:
            self._ask(path, method, body)
        except urllib.error.HTTPError as error:
            if error.code == passed_over:
                return False
            refuses = (
                "refuses this user, which needs the tag administrator: rabbitmqctl set_user_tags USER administrator"
            )
            why = refuses if error.code in (401, 403) else f"answers {error.code}"
            raise BrokerError(f"RabbitMQ's management API at {self._url} {why}") from None
        except (OSError, ValueError):
            raise BrokerError(
                f"RabbitMQ's management API does not answer at {self._url}; give its --management-url, or "
                "--rabbitmqctl COMMAND, or load the definitions that `python -m workers.rights definitions` prints"
            ) from None
        return True


class ByControl:
    """The command rabbitmqctl of a broker."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def apply(self, wanted: dict[str, Any]) -> None:
        """Make the users, or change them. Raises BrokerError."""
        self._try(["import_definitions"], json.dumps(wanted))

    def remove(self, users: list[str]) -> int:
        """Delete users; return how many there were. Raises BrokerError."""
        return sum(self._try(["delete_user", user], "", "no_such_user") for user in users)

    def _try(self, words: list[str], told: str, passed_over: str = "") -> bool:
        """Run a command; return False if it fails with `passed_over` in its output. Raises BrokerError."""
        status, said = self._control(words, told)
        if status and not (passed_over and passed_over in said):
            raise BrokerError(f"rabbitmqctl {words[0]} ended with status {status}: {said.strip() or 'it said nothing'}")
        return status == 0


def control_by(command: str, patience: float = CONTROL_TIMEOUT) -> Control:
    """Return a function that runs rabbitmqctl by `command`, for `patience` s at most; beyond, it raises BrokerError.

    Raises ConfigurationError for a command that a shell could not read; the function does if it cannot be run.
    """
    words = words_of(command)

    def control(more: list[str], told: str) -> tuple[int, str]:
        try:
            done = subprocess.run(
                [*words, *more], input=told, capture_output=True, text=True, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            raise BrokerError(
                f"--rabbitmqctl: {command!r} took over {patience:g} s; see whether its node runs"
            ) from None
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"--rabbitmqctl: {command!r} cannot be run ({error}); correct it") from None
        return done.returncode, done.stderr or done.stdout

    return control
