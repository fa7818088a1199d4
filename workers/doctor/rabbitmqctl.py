"""Facts about a RabbitMQ from its command line tool, rabbitmqctl."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from warren.errors import ConfigurationError
from workers.doctor.broker_facts import BrokerFacts

CONTROL_TIMEOUT = 60.0  # s for one rabbitmqctl, whose Erlang takes seconds to start on a busy machine

Control = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def with_rabbitmqctl(facts: BrokerFacts, control: Control) -> BrokerFacts:
    """Return `facts` with those of `rabbitmqctl`, which `control` runs with the given arguments."""
    try:
        done = control(["--quiet", "status", "--formatter", "json"])
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise OSError(f"rabbitmqctl ended with status {done.returncode}: {lines[0]}")
        facts = of_status(facts, json.loads(done.stdout))
        timeout = control(["--quiet", "eval", "application:get_env(rabbit, consumer_timeout)."])
        return replace(facts, consumer_timeout=consumer_timeout_of(timeout.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return replace(facts, unseen={**facts.unseen, "rabbitmqctl": str(error)})


def of_status(facts: BrokerFacts, status: dict[str, Any]) -> BrokerFacts:
    """Return `facts` with those of `rabbitmqctl status --formatter json`."""
    memory, files = status.get("memory") or {}, status.get("file_descriptors") or {}
    used = memory.get("total")
    if isinstance(used, dict):  # by several strategies; alarms use the resident set, or the largest
        used = used.get("rss") or max(used.values())
    alarms = [str(one.get("resource", one) if isinstance(one, dict) else one) for one in status.get("alarms", ())]
    return replace(
        facts,
        alarms=tuple(alarms),
        memory_used=used, memory_limit=status.get("vm_memory_limit") or status.get("vm_memory_high_watermark_limit"),
        disk_free=_number(status.get("disk_free")), disk_limit=_number(status.get("disk_free_limit")),
        handles_used=files.get("total_used"), handles=files.get("total_limit"),
    )  # fmt: skip


def words_of(command: str) -> list[str]:
    """Return the words of the option --rabbitmqctl. Raises ConfigurationError if a shell could not read them."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"--rabbitmqctl: {command!r} is no command ({error}); close its quotation") from None


def command_line(command: str) -> Control:
    """Return a function that runs rabbitmqctl by a command line such as `docker exec NAME rabbitmqctl`.

    Raises ConfigurationError for one that a shell could not read.
    """
    words = words_of(command)

    def control(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *arguments], capture_output=True, text=True, timeout=CONTROL_TIMEOUT, check=False
        )

    return control


def consumer_timeout_of(told: str) -> float | None:
    """Parse `{ok,1800000}` (ms), `undefined` or `{ok,undefined}` into seconds; None for anything else."""
    if match := re.search(r"\{ok,\s*(\d+)\}", told):
        return int(match[1]) / 1000.0
    return float("inf") if "undefined" in told or "infinity" in told else None


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None  # "NaN" where the disk cannot be seen
