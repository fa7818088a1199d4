"""`make compose-test`: test docker-compose.yml on a real engine, scenario by scenario.

python3 tests/compose [SCENARIO ...]      all scenarios, or those named; --list prints their steps

It builds an image, and uses projects, volumes and ports of its own; at the end it removes all but the image.
TORCH_INDEX and HOROVOD are as in docs/docker.md. COMPOSE_TEST_ENGINE_STOP and COMPOSE_TEST_ENGINE_START may hold
shell commands that stop and start the engine; without them that step runs `docker compose stop` and `start`.
COMPOSE_TEST_PATIENCE=3 triples the time limits, for a machine that has other work.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from types import FrameType

from faults import FAULTS
from pods import PODS
from project import IMAGE, PATIENCE, Failed, Project, docker
from scenario import Scenario
from serving import SERVING
from training import CARTPOLE, KUHN, STATUS, UPDATE

SCENARIOS = [CARTPOLE, FAULTS, UPDATE, STATUS, KUHN, SERVING, PODS]
BUILD = 60.0  # minutes


class TooLong(Failed):
    """A step exceeded its time limit."""


def out_of_time(number: int, frame: FrameType | None) -> None:
    raise TooLong("it took longer than it may")


def report(name: str, began: float, failure: str, seen: str) -> None:
    minutes = (time.monotonic() - began) / 60
    print(f"{'failed' if failure else 'passed'} {minutes:5.1f} min  {name}: {failure or seen}", flush=True)


def attempt(name: str, minutes: float, action: object, *given: object) -> bool:
    """Run one step of at most `minutes`; print its name, duration and result; return whether it passed."""
    began, seen, failure = time.monotonic(), "", ""
    print(f"       {name} ...", flush=True)
    signal.setitimer(signal.ITIMER_REAL, minutes * 60 * PATIENCE)
    try:
        seen = action(*given) or ""  # type: ignore[operator]
    except Failed as error:
        failure = str(error)
    except Exception as error:  # an error of this script: the other scenarios still run
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    report(name, began, failure, seen)
    return not failure


def play(scenario: Scenario) -> list[tuple[str, bool]]:
    """Run the steps of a scenario until one fails, and remove its project; return (name, passed) per step."""
    project = Project(f"warren-proof-{scenario.name}-{os.getpid()}", **scenario.variables)
    results: list[tuple[str, bool]] = []
    try:
        for name, minutes, step in scenario.steps:
            results.append((f"{scenario.name}: {name}", attempt(f"{scenario.name}: {name}", minutes, step, project)))
            if not results[-1][1]:
                print(project.run("ps", "--all")[1], project.run("logs", "--tail", "15")[1], sep="\n", flush=True)
                break
    finally:
        project.remove()
    return results


def build() -> str:
    project = Project(f"warren-proof-{os.getpid()}")
    project.compose("build", timeout=BUILD * 60)
    size = int(docker("image", "inspect", "--format", "{{.Size}}", IMAGE))
    return f"{size / 1e6:,.0f} MB"


def main() -> int:
    """Run the command line; return exit status 0 if all steps passed, else 1."""
    parser = argparse.ArgumentParser(
        prog="make compose-test", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(one.name for one in SCENARIOS)}")
    parser.add_argument("--list", action="store_true", help="tell the steps, and run nothing")
    parser.add_argument("--built", action="store_true", help="use the image of the last time")
    given = parser.parse_args()
    known = {one.name: one for one in SCENARIOS}
    if unknown := [name for name in given.scenario if name not in known]:
        parser.error(f"there is no scenario {unknown[0]}; there are {', '.join(known)}")
    chosen = [known[name] for name in given.scenario] or SCENARIOS
    if given.list:
        for one in chosen:
            print(one.name, *(f"  {name} (at most {minutes:g} min)" for name, minutes, _ in one.steps), sep="\n")
        return 0
    signal.signal(signal.SIGALRM, out_of_time)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    if not given.built and not attempt("the image is built", BUILD, build):
        return 1
    results = [result for one in chosen for result in play(one)]
    failed = [name for name, passed in results if not passed]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed, {(time.monotonic() - began) / 60:.1f} min")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; its containers are removed", file=sys.stderr)
        sys.exit(130)
