"""Run a launcher's own verification in a process of its own: it has a time limit, and the launcher has no torch.

python -m workers.config.verifying CONFIGURATION.yaml ANSWER.json
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from warren.errors import ConfigurationError
from workers.config import plain_checks
from workers.config.schema import Config, from_yaml, to_yaml
from workers.servers.forks import ENVIRONMENT, Forks
from workers.servers.process import Child

POLL_EVERY = 0.02  # s
SAY_AFTER = 15.0  # s
WITHIN = 300.0  # s; games that compile or download something at first take a minute
GRACE = 0.5  # s between SIGTERM and SIGKILL, after a Ctrl-C


def verify(config: Config, forks: Forks | None) -> None:
    """`validation.verify` of a launcher: raises one ConfigurationError that lists every problem.

    A process of its own builds things, and is given WITHIN to do so; `forks` forks it, without that exec starts it.
    """
    problems = [*plain_checks.problems(config, "train")]
    with tempfile.TemporaryDirectory(prefix="warren-verifying-") as folder:
        problems += _built(config, Path(folder), forks)
    if problems:
        raise ConfigurationError(problems)


def _built(config: Config, folder: Path, forks: Forks | None) -> list[str]:
    question, answer, log = (folder / f"verifying.{kind}" for kind in ("yaml", "json", "log"))
    question.write_text(to_yaml(config))
    setting, game = ("env.id", config.env.id) if config.league is None else ("league.env", config.league.get("env"))
    line = [sys.executable, "-m", __name__, str(question), str(answer)]
    child = Child("the verification", line, log, {**os.environ, **ENVIRONMENT}, GRACE, forks)
    late, said_at = False, time.monotonic() + SAY_AFTER
    deadline = time.monotonic() + WITHIN
    try:
        while child.alive and not (late := time.monotonic() > deadline):
            if time.monotonic() > said_at:
                said_at = deadline + 1.0
                print(f"{game} is being made and tried for {SAY_AFTER:g} s already", file=sys.stderr)
            time.sleep(POLL_EVERY)
    finally:
        child.stop()
    if late:
        raise ConfigurationError(
            f"{setting}: {game} was not made and tried within {WITHIN:g} s; does its constructor, reset() or "
            f"step() wait for something? Its last lines:\n{child.last_lines()}"
        )
    if child.status != 0:
        raise ConfigurationError(
            f"what the configuration names ended the process that verified it, with status {child.status}:\n"
            f"{child.last_lines()}"
        )
    sys.stderr.write(child.output())  # what a user's code has to say
    return [str(problem) for problem in json.loads(answer.read_text())]


def main() -> None:
    """In that process."""
    from workers.config import validation  # and with it torch

    question, answer = map(Path, sys.argv[1:])
    answer.write_text(json.dumps([*validation.problems_of_building(from_yaml(question), "train")]))


if __name__ == "__main__":
    main()
