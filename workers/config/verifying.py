"""The launcher's verification, in a separate process: with a time limit, and without torch in the launcher.

python -m workers.config.verifying CONFIGURATION.yaml ANSWER.json
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from warren.errors import ConfigurationError
from workers.config.run_names import run_folder
from workers.config.schema import Config, from_yaml, to_yaml
from workers.servers.forks import ENVIRONMENT, Forks
from workers.servers.process import Child

POLL_EVERY = 0.02  # s
SAY_AFTER = 15.0  # s
WITHIN = 300.0  # s; games that compile or download something the first time take a minute
GRACE = 0.5  # s between SIGTERM and SIGKILL, after a Ctrl-C


def problems_of_building(config: Config, forks: Forks | None) -> list[str]:
    """Return the problems that `validation.problems_of_building` yields for a launcher, found by a separate process.

    `forks` forks that process; without `forks` it is started by exec. Raises ConfigurationError if the process takes
    more than WITHIN s or ends without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="warren-verifying-") as folder:
        return _built(config, Path(folder), forks)


def _built(config: Config, folder: Path, forks: Forks | None) -> list[str]:
    question, answer, log = (folder / f"verifying.{kind}" for kind in ("yaml", "json", "log"))
    question.write_text(to_yaml(config), encoding="utf-8")
    setting, game = ("env.id", config.env.id) if config.league is None else ("league.env", config.league.get("env"))
    line = [sys.executable, "-m", __name__, str(question), str(answer)]
    child = Child("the verification", line, log, {**os.environ, **ENVIRONMENT}, GRACE, forks)
    late, said_at = False, time.monotonic() + SAY_AFTER
    deadline = time.monotonic() + WITHIN
    try:
        while child.alive and not (late := time.monotonic() > deadline):
            if time.monotonic() > said_at:
                said_at = deadline + 1.0
                print(f"{game}: still building and testing it after {SAY_AFTER:g} s", file=sys.stderr)
            time.sleep(POLL_EVERY)
    finally:
        child.stop()
    if late:
        raise ConfigurationError(
            f"{setting}: {game} could not be built and tested within {WITHIN:g} s; does its constructor, reset() or "
            f"step() wait for something? Its last lines:\n{child.last_lines()}"
        )
    if child.status != 0:
        raise ConfigurationError(
            f"{setting}: the process that built and tested {game} ended with status {child.status}; its last lines:\n"
            f"{child.last_lines()}"
        )
    sys.stderr.write(child.output())  # output of the user's code
    return [str(problem) for problem in json.loads(answer.read_text(encoding="utf-8"))]


def main() -> None:
    """Verify in the separate process and write the problems to the answer's file."""
    from agents import computing, devices  # and with them torch
    from workers.config import validation

    question, answer = map(Path, sys.argv[1:])
    config = from_yaml(question)
    answer.write_text(json.dumps([*validation.problems_of_building(config, "train")]), encoding="utf-8")
    lines = [computing.slower(config.perceptrons)]
    if config.device in ("auto", "cpu") and not config.hosts:
        lines.append(computing.emulated(config.precision, devices.resolve(config.device)))
    for line in filter(None, [*lines, *_passed_over(config)]):
        print(line, file=sys.stderr)


def _passed_over(config: Config) -> Iterator[str]:
    """Yield a warning for each damaged checkpoint of a resumed run that has a whole one: work may be lost with it."""
    from agents import checkpoints

    if config.trial is None:
        return
    run = run_folder(config)
    for folder in (run / "checkpoints", *sorted(run.glob("players/*/checkpoints"))):
        if taken := checkpoints.latest(folder):
            for path in checkpoints.unreadable(folder):
                yield f"warning: checkpoint {path} is damaged; the run goes on from {taken.name}"


if __name__ == "__main__":
    main()
