"""The servers and settings to check: a live run's, servers given by URLs, or those that a new run would take."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from warren.errors import BrokerError, ConfigurationError
from workers import servers
from workers.config.overrides import compose, in_full, settings_of
from workers.config.run_names import name_run
from workers.config.schema import Config, from_hydra, from_yaml
from workers.config.validation import verify
from workers.doctor.findings import Finding, Level
from workers.doctor.rabbitmqctl import CONTROL_TIMEOUT, Control, command_line
from workers.servers import debian, record
from workers.servers.private_rabbitmq import Node


@dataclass(frozen=True)
class Target:
    """A pair of servers to check. `control`: its rabbitmqctl, if any. `private`: the servers end with their run."""

    broker_url: str
    redis_url: str
    description: str
    private: bool = False
    control: Control | None = None


def settings(
    overrides: list[str], folder: Path | None, run: str | None, role: str | None = None
) -> tuple[Config, list[Finding]]:
    """Return the settings of a run with these overrides, or of the live `run`, and the findings about them.

    The folder of `run` exists, maybe where this process may not write, or on another machine. With `role` the settings
    are those of that role's command line; the role itself checks its folder and devices.
    """
    name = role or "train"
    wrong: list[str] = []
    given = [in_full(override) for override in overrides]
    if folder is not None and not overrides and (folder / "config.yaml").exists():
        config = from_yaml(folder / "config.yaml")
    else:
        try:
            found = compose(name, given)
        except ConfigurationError as error:
            wrong, found = error.problems, compose(name, [])
        assert found is not None
        config = from_hydra(settings_of(found))
    goes_on = run is not None
    if goes_on and folder is None:
        config.run = run
    if goes_on:
        name_run(config)  # its name is unknown: only its folder was given
    if not wrong:
        try:
            verify(config, "actor" if goes_on else name, elsewhere=role is not None)
        except ConfigurationError as error:
            wrong = error.problems
    name_run(config)
    findings = [Finding("settings", Level.error, problem, "correct the override") for problem in wrong]
    return config, findings or [Finding("settings", Level.ok, " ".join(overrides) or "as they are")]


@contextmanager
def target(
    config: Config, folder: Path | None, broker_url: str | None, redis_url: str | None, rabbitmqctl: str | None
) -> Iterator[Target]:
    """Yield the servers to check. Raises ConfigurationError or BrokerError, as a run's start would."""
    control = None if rabbitmqctl is None else command_line(rabbitmqctl)
    if folder is not None:
        known = record.read(folder)
        node = None if known.node is None else Node(**known.node)
        yield Target(
            known.broker_url, known.redis_url, f"run folder {folder}: {known.description}",
            node is not None, control or (None if node is None else of_node(node)),
        )  # fmt: skip
        return
    mode = config.broker.mode
    machine = servers.Machine(os_release=Path(os.devnull))  # a check installs nothing
    if mode == "install":
        if missing := debian.missing(machine):
            raise BrokerError(f"{' and '.join(missing)} not installed yet; run python -m workers.servers install")
        mode = "private"
    with (
        tempfile.TemporaryDirectory(prefix="warren-doctor-") as scratch,
        servers.acquire(
            mode, broker_url or config.broker.url, redis_url or config.broker.redis_url,
            folder=Path(scratch), say=lambda _: None, machine=machine,
        ) as found,
    ):  # fmt: skip
        private = record.read(found.folder).node
        yield Target(
            found.broker_url, found.redis_url, found.description, bool(found.children),
            control or (None if private is None else of_node(Node(**private))),
        )  # fmt: skip


def of_node(node: Node) -> Control:
    """Return the rabbitmqctl of a private node."""
    return lambda arguments: node.control(list(arguments), capture_output=True, text=True, timeout=CONTROL_TIMEOUT)
