"""The users of a run's roles and their passwords, in a file that only its owner reads: a line `USER PASSWORD` each."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tasks import rights
from warren.environment import secret
from warren.errors import ConfigurationError
from workers.servers.process import write_secret
from workers.servers.running import BROKER_VARIABLE, REDIS_VARIABLE

VARIABLE = "WARREN_PASSWORDS"  # names the file in the environment of a launcher
OF_ONE = "WARREN_PASSWORD_"  # followed by a role in capitals: the password for its user
MADE_BY = "python -m workers.rights --run NAME apply"
_LINE = re.compile(r"(?P<user>\S+) (?P<password>\S+)")
_LOGIN = re.compile(r"([a-z+]+://)(?:[^/]*@)?", re.IGNORECASE)  # to the last "@", as a password may hold one


@dataclass(frozen=True)
class Accounts:
    """Users and their passwords."""

    passwords: Mapping[str, str] = field(repr=False)
    path: Path | None = None

    def login(self, role: str, run: str) -> tuple[str, str]:
        """Return the user of a role in `run`, or else of that role in every run, and the password.

        Raises ConfigurationError if there is no such user.
        """
        named = [rights.user_name(role, run)] if run else []
        for user in (*named, rights.user_name(role)):
            if user in self.passwords:
                return user, self.passwords[user]
        raise ConfigurationError(
            f"{VARIABLE}: {self.path} has no user {' or '.join([*named, rights.user_name(role)])}; make it: {MADE_BY}"
        )

    def urls(self, role: str, run: str, broker_url: str, redis_url: str) -> tuple[str, str]:
        """Return the URLs of both servers with the login of a role. Raises ConfigurationError without its user."""
        login = self.login(role, run)
        return with_login(broker_url, *login), with_login(redis_url, *login)

    def environment(self, role: str, run: str, broker_url: str, redis_url: str) -> dict[str, str]:
        """Return the two variables of the URLs. Raises ConfigurationError without the role's user."""
        urls = self.urls(role, run, broker_url, redis_url)
        return dict(zip((BROKER_VARIABLE, REDIS_VARIABLE), urls, strict=True))


def with_login(url: str, user: str, password: str) -> str:
    """Return a URL, or several with ";" between them, with this login in place of the present one.

    Raises ConfigurationError for a URL whose login cannot be replaced.
    """
    login, found = f"{quote(user, safe='')}:{quote(password, safe='')}@", []
    for one in url.split(";"):
        match = _LOGIN.match(one)
        if match is None:
            raise ConfigurationError(
                f"{BROKER_VARIABLE}, {REDIS_VARIABLE}: {user} cannot take the place of the user in one of them; write "
                "scheme://user:password@host, with %3B for a ; in the password"
            )
        found.append(match[1] + login + one[match.end() :])
    return ";".join(found)


def without_logins(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the logins of others: passwords, their file, and URLs of the servers."""
    secrets_of_others = (OF_ONE, VARIABLE, BROKER_VARIABLE, REDIS_VARIABLE, "WARREN_PASSWORD")
    return {name: value for name, value in environment.items() if not name.startswith(secrets_of_others)}


def given(environment: Mapping[str, str] = os.environ) -> Accounts | None:
    """Return the users whose passwords are in the file that the environment names; None if it names none.

    Raises ConfigurationError for a file that cannot be read, or that others may read.
    """
    path = environment.get(VARIABLE)
    return read(Path(path)) if path else None


def read(path: Path) -> Accounts:
    """Return the users in a file. Raises ConfigurationError for a file that cannot be read, or that others may read."""
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"{path}: other users of this machine may read these passwords; chmod 600 {path}")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}; make it: {MADE_BY}") from None
    matches = [_LINE.fullmatch(line) for line in lines]
    if None in matches:
        number = 1 + matches.index(None)
        raise ConfigurationError(f"{path}: line {number} is not a user and a password; make the file anew: {MADE_BY}")
    return Accounts({match["user"]: match["password"] for match in matches if match}, path)


def kept(path: Path, run: str | None, environment: Mapping[str, str] = os.environ) -> Accounts:
    """Return a user for each role of `run` (None: of every run), and write new users into the file.

    A password is that of WARREN_PASSWORD_ROLE, else the file's, else a random one. Raises ConfigurationError.
    """
    variables = {rights.user_name(role, run): OF_ONE + role.upper() for role in rights.TABLE}
    return Accounts(kept_by(path, variables, environment), path)


def kept_by(path: Path, variables: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords of the users in `variables`, and write new ones into the file.

    `variables`: user -> the variable of the environment that may give its password. Raises ConfigurationError.
    """
    try:
        before = read(path).passwords if path.exists() else {}
    except OSError as error:
        raise _unwritable(path, error) from None
    users = {}
    for user, variable in variables.items():
        users[user] = secret(variable, environment) or before.get(user) or secrets.token_hex(24)
        if not _LINE.fullmatch(f"{user} {users[user]}"):
            raise ConfigurationError(f"{variable}: a password has no spaces; give another")
    new = path.with_name(f"{path.name}.new")
    try:
        write_secret(new, "".join(f"{user} {password}\n" for user, password in {**before, **users}.items()))
        new.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    return users


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"--passwords: {path} cannot be written: {error.strerror}; name a file in a folder of yours"
    )
