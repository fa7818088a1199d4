"""A launcher's own verification: in a process that is forked where that is possible, as the launcher has no torch.

python -m workers.config.verifying CONFIGURATION.yaml ANSWER.json
"""

from __future__ import annotations

import json
import os
import sys
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


def verify(config: Config, folder: Path, forks: Forks | None) -> None:
    """`validation.verify` of a launcher: raises one ConfigurationError that lists every problem.

    `forks`: what forks the process that builds things, with its files in `folder`; None: this one does it.
    """
    problems = [*plain_checks.problems(config, "train")]
    problems += _here(config) if forks is None else _apart(config, folder, forks)
    if problems:
        raise ConfigurationError(problems)


def _here(config: Config) -> list[str]:
    from workers.config import validation  # and with it torch

    return [*validation.problems_of_building(config, "train")]


def _apart(config: Config, folder: Path, forks: Forks) -> list[str]:
    question, answer, log = (folder / f"verifying.{kind}" for kind in ("yaml", "json", "log"))
    question.write_text(to_yaml(config))
    line = [sys.executable, "-m", __name__, str(question), str(answer)]
    try:
        child = Child("the verification", line, log, {**os.environ, **ENVIRONMENT}, GRACE, forks)
        late, said_at = False, time.monotonic() + SAY_AFTER
        deadline = time.monotonic() + WITHIN
        try:
            while child.alive and not (late := time.monotonic() > deadline):
                if time.monotonic() > said_at:
                    said_at = deadline + 1.0
                    print(f"{config.env.id} is being made and tried for {SAY_AFTER:g} s already", file=sys.stderr)
                time.sleep(POLL_EVERY)
        finally:
            child.stop()
        if late:
            raise ConfigurationError(
                f"env.id: {config.env.id} was not made and tried within {WITHIN:g} s; does its constructor, reset() or "
                f"step() wait for something? Its last lines:\n{child.last_lines()}"
            )
        if child.status != 0:
            raise ConfigurationError(
                f"what the configuration names ended the process that verified it, with status {child.status}:\n"
                f"{child.last_lines()}"
            )
        sys.stderr.write(child.output())  # what a user's code has to say
        return [str(problem) for problem in json.loads(answer.read_text())]
    finally:
        for file in (question, answer, log):
            file.unlink(missing_ok=True)


def main() -> None:
    """In that process."""
    question, answer = map(Path, sys.argv[1:])
    answer.write_text(json.dumps(_here(from_yaml(question))))


if __name__ == "__main__":
    main()
