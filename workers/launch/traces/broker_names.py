"""The queues and exchanges of runs as a broker lists them, including those of runs that Redis has forgotten.

AMQP cannot list them; the management API and rabbitmqctl can. Without either, `BrokerListing.unseen` says so.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from workers.doctor.management import management_api
from workers.doctor.rabbitmqctl import Control
from workers.servers.checks import redact

_NAME = re.compile(r"warren\.([A-Za-z0-9][A-Za-z0-9_-]{0,79})\..+", re.DOTALL)


@dataclass
class Names:
    """The names of one run on the broker."""

    queues: list[str] = field(default_factory=list)
    exchanges: list[str] = field(default_factory=list)


@dataclass
class BrokerListing:
    """Names by run. `unseen`: why they cannot be listed; "" if they were."""

    runs: dict[str, Names] = field(default_factory=dict)
    unseen: str = ""


def list_names(broker_url: str, control: Control | None = None, management_url: str | None = None) -> BrokerListing:
    """List the queues and exchanges on the broker by run.

    `control`: the broker's rabbitmqctl; `management_url`: its management API. Without them nothing is asked: the
    password is sent only where the user says.
    """
    if not broker_url.startswith("amqp"):
        return BrokerListing()  # the broker is a Redis, whose queues are keys
    why = []
    if control is not None:
        try:
            return _by_run(*(_with_rabbitmqctl(control, kind, broker_url) for kind in ("queues", "exchanges")))
        except (OSError, subprocess.SubprocessError) as error:
            why.append(f"rabbitmqctl: {error}")
    if management_url is None:
        return BrokerListing(unseen="; ".join(why) or "AMQP lists nothing")
    try:
        get = management_api(broker_url, management_url)
        path = quote(_virtual_host(broker_url), safe="")
        return _by_run(*([one["name"] for one in get(f"{kind}/{path}")] for kind in ("queues", "exchanges")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        why.append(f"the management API at {redact(management_url)}: {error}")
    return BrokerListing(unseen="; ".join(why))


def _with_rabbitmqctl(control: Control, kind: str, broker_url: str) -> list[str]:
    done = control(["--quiet", f"list_{kind}", "-p", _virtual_host(broker_url), "name", "--formatter", "json"])
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise OSError(f"it ended with status {done.returncode}: {lines[0]}")
    try:
        return [str(one["name"]) for one in json.loads(done.stdout)]
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"its list cannot be read: {error}") from error


def _by_run(queues: Sequence[str], exchanges: Sequence[str]) -> BrokerListing:
    found = BrokerListing()

    def add(names: Iterable[str], kind: str) -> None:
        for name in names:
            if match := _NAME.fullmatch(name):
                getattr(found.runs.setdefault(match[1], Names()), kind).append(name)

    add(queues, "queues")
    add(exchanges, "exchanges")
    return found


def _virtual_host(broker_url: str) -> str:
    path = urlsplit(broker_url.partition(";")[0]).path
    return unquote(path[1:]) or "/"
