"""The logins of a run's containers as files: a folder for each server and each role, to be mounted only there.

`write` needs no server: RabbitMQ imports the users when it starts, and Redis reads them in its configuration.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warren.errors import ConfigurationError
from workers.config import roles
from workers.rights import accounts, on_rabbitmq, on_redis
from workers.rights.accounts import Accounts, with_login

MOUNTED = "/run/warren"  # a container's mount point for the files of its folder
PASSWORDS = "passwords"  # passwords of all users; mounted only by the container that makes them
# The administrator of each server, whose login is only in that server's folder -> variable that may give the password.
ADMINISTRATORS = {"warren": "WARREN_RABBITMQ_PASSWORD", "default": "WARREN_REDIS_PASSWORD"}
LAUNCHER, SCALER = "launcher", "scaler"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def write(
    folder: Path, run: str, *, served: bool = False, domain: str = "", environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Write the files of a run's servers and roles into `folder`; return their names, each FOLDER/NAME.

    Passwords are those of the environment, else those in the folder, else random. `served`: actors decide for env
    runners. `domain`: that of the hosts rabbitmq and redis in the URLs. Raises ConfigurationError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"files: {folder} cannot be made: {error.strerror}; name a folder of yours") from None
    users = accounts.kept(folder / PASSWORDS, run, environment)
    administrators = accounts.kept_by(folder / PASSWORDS, ADMINISTRATORS, environment)
    for user, password in administrators.items():
        if not _PLAIN.fullmatch(password):
            raise ConfigurationError(
                f"{ADMINISTRATORS[user]}: use letters, digits, '-' and '_', which mean nothing to the server"
            )
    found = {
        **_of_rabbitmq(users, administrators["warren"]),
        **_of_redis(users, administrators["default"]),
        **_of_roles(users, run, served, domain and f".{domain}"),
    }
    for name, text in found.items():
        _put(folder / name, text)
    return list(found)


def _of_rabbitmq(users: Accounts, password: str) -> dict[str, str]:
    definitions: dict[str, Any] = on_rabbitmq.definitions(users, "/")
    definitions["vhosts"] = [{"name": "/"}]  # a server that imports definitions makes no vhost itself
    definitions["users"].append({"name": "warren", "tags": "administrator", **on_rabbitmq.hashed(password)})
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    definitions["permissions"].append({"user": "warren", "vhost": "/", **everything})
    return {
        "rabbitmq/rabbitmq.conf": f"load_definitions = {MOUNTED}/definitions.json",
        "rabbitmq/definitions.json": json.dumps(definitions, indent=2),
    }


def _of_redis(users: Accounts, password: str) -> dict[str, str]:
    lines = [f"requirepass {password}", *on_redis.lines(users)]
    return {"redis/redis.conf": "\n".join(lines), "redis/password": password}


def _of_roles(users: Accounts, run: str, served: bool, domain: str) -> dict[str, str]:
    found: dict[str, str] = {}
    login = {role.name: (role.served_rights if served else "") or role.rights or role.name for role in roles.ROLES}
    for name, role in {**login, LAUNCHER: LAUNCHER}.items():
        urls = users.urls(role, run, f"amqp://rabbitmq{domain}:5672//", f"redis://redis{domain}:6379/0")
        found |= {f"{name}/broker-url": urls[0], f"{name}/redis-url": urls[1]}
    management = with_login(f"http://rabbitmq{domain}:15672/", *users.login(SCALER, run))
    return {**found, f"{SCALER}/management-url": management}


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all; any user of a container that mounts its folder may read it."""
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(exist_ok=True)
        path.parent.chmod(0o755)
        new.write_text(f"{text}\n", encoding="utf-8")
        new.chmod(0o644)
        new.replace(path)
    except OSError as error:
        raise ConfigurationError(f"files: {path} cannot be written: {error.strerror}; name a folder of yours") from None
