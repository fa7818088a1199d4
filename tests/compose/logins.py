"""Logins of containers: each has only those of its role, and is refused what belongs to other roles."""

from __future__ import annotations

import json
import re

from project import Project, expect

# Prints what a container may do with its own files and variables alone. A message that it gets is requeued.
TRY = """
import json, os, sys
from urllib.parse import urlsplit
import amqp, redis

run, files = sys.argv[1], sorted(os.listdir("/run/warren"))
broker, store = (open(os.environ[f"WARREN_{one}_URL_FILE"]).read().strip() for one in ("BROKER", "REDIS"))
at, client = urlsplit(broker), redis.Redis.from_url(store)
connection = amqp.Connection(f"{at.hostname}:{at.port}", userid=at.username, password=at.password)
connection.connect()

def may(attempt):
    try:
        attempt()
    except (amqp.AccessRefused, redis.exceptions.NoPermissionError):
        return False
    return True

def change():
    client.hset(f"warren.{run}:league:tried", "by", at.username)
    client.delete(f"warren.{run}:league:tried")

print(json.dumps({
    "user": at.username,
    "files": files,
    "told by its environment": any(at.password in value for value in os.environ.values()),
    "reads the learner's queue": may(lambda: connection.channel().basic_get(f"warren.{run}.learner.main")),
    "changes the league": may(change),
    "reads the league": may(lambda: client.hgetall(f"warren.{run}:league:settings")),
}))
"""


def attempts(project: Project, service: str, run: str) -> dict[str, object]:
    """Return what a service's container may do in `run`."""
    said = project.compose("exec", "--no-TTY", service, "python", "-c", TRY, run)
    return dict(json.loads(said.splitlines()[-1]))


def refused(project: Project) -> list[str]:
    """Return what the servers refused to roles; a role's rights have to cover all that it needs."""
    by_rabbitmq = re.findall(r"access to .* refused for user .*|ACCESS_REFUSED.*", project.logs("rabbitmq"))
    ask = "REDISCLI_AUTH=$(cat /run/warren/password) redis-cli ACL LOG 100"
    said = project.compose("exec", "--no-TTY", "redis", "sh", "-c", ask)
    return [*by_rabbitmq, *re.findall(r"object\s+(\S+)", said)]


def connected(project: Project) -> set[str]:
    """Return the users that are connected to RabbitMQ."""
    listed = project.compose("exec", "--no-TTY", "rabbitmq", "rabbitmqctl", "--quiet", "list_connections", "user")
    return {line for line in listed.split() if line.startswith("warren")}


def each_has_its_own(project: Project, run: str, allowed: dict[str, tuple[str, bool, bool]]) -> str:
    """Check that each service has the rights in `allowed`; return the users connected to RabbitMQ.

    `allowed`: service -> (role of its user, whether it may read segments, whether it may change the league).
    """
    expect(refused(project) == [], f"roles were refused {refused(project)}")
    for service, (role, reads, changes) in allowed.items():
        found = attempts(project, service, run)
        expected = {
            "user": f"warren.{run}.{role}", "files": ["broker-url", "redis-url"], "told by its environment": False,
            "reads the learner's queue": reads, "changes the league": changes, "reads the league": True,
        }  # fmt: skip
        expect(found == expected, f"{service}: {found}")
    return ", ".join(sorted(connected(project)))
