"""Scaling, kills and restarts, which a run has to survive."""

from __future__ import annotations

import json
import os
import re
import time

from project import PATIENCE, Project, command, docker, expect, kill, now, until
from scenario import ENDLESS, Scenario, Step

STOP, START = "COMPOSE_TEST_ENGINE_STOP", "COMPOSE_TEST_ENGINE_START"  # shell commands, if you may stop the engine
FAULTS = Scenario("faults", {"WARREN_OVERRIDES": ENDLESS})


@FAULTS.step("it learns", 5)
def begin(project: Project) -> str:
    project.up("--wait", "--wait-timeout", f"{240 * PATIENCE:.0f}")
    return f"version {project.learns_on()}"


@FAULTS.step("--scale actor=4", 4)
def more_actors(project: Project) -> str:
    project.up("--no-recreate", "--scale", "actor=4")

    def joined() -> list[str]:
        found = set(re.findall(r"this is (actor-\d)", project.logs("actor")))
        return sorted(found) if len(found) >= 4 else []

    names = until("four actors have joined", 120, joined)
    return f"{', '.join(names)}; version {project.learns_on()}"


@FAULTS.step("--scale actor=1 drains the others", 4)
def fewer_actors(project: Project) -> str:
    since = now()
    gone = {one["Id"] for one in project.containers("actor")}
    project.up("--no-recreate", "--scale", "actor=1")
    gone -= {one["Id"] for one in project.containers("actor")}
    expect(len(gone) == 3, f"{len(gone)} actors ended")
    ends = ["events", "--since", since, "--until", now(), "--filter", "event=die", "--format", "{{json .Actor}}"]
    told = [json.loads(line) for line in docker(*ends).splitlines()]
    statuses = [one["Attributes"]["exitCode"] for one in told if one["ID"] in gone]
    expect(statuses == ["0", "0", "0"], f"their exit statuses are {statuses}")
    return f"3 ended with status 0; version {project.learns_on()}"


def killed(service: str) -> Step:
    def step(project: Project) -> str:
        before = project.containers(service)[0]
        count, began = int(before["RestartCount"]), time.monotonic()
        kill(before)

        def is_back() -> bool:
            one = next(one for one in project.containers(service) if one["Id"] == before["Id"])
            return int(one["RestartCount"]) > count and project.runs_well(service)

        until(f"{service} is started again", 240, is_back)
        seconds = time.monotonic() - began
        return f"back after {seconds:.0f} s; version {project.learns_on()}"

    return step


for each in ("learner", "actor", "flower", "passwords", "redis", "rabbitmq"):
    FAULTS.step(f"{each} is killed and comes back", 8)(killed(each))


@FAULTS.step("the engine stops and starts", 10)
def engine_restart(project: Project) -> str:
    before = project.learns_on()
    if os.environ.get(STOP) and os.environ.get(START):
        for variable, is_there in ((STOP, False), (START, True)):
            status, said = command("sh", "-c", os.environ[variable], timeout=240)
            expect(status == 0, f"{variable} ended with status {status}: {said[-1000:]}")
            until("the engine obeys", 240, lambda there=is_there: (command("docker", "info")[0] == 0) == there)  # type: ignore[misc]
        how = "the engine itself"
    else:
        project.compose("stop", timeout=400)
        project.compose("start", timeout=400)
        how = f"compose stop and start, since {STOP} and {START} are not given"
    until("all run again", 300, lambda: all(map(project.runs_well, ("rabbitmq", "redis", "learner", "actor"))))
    after = project.learns_on(seconds=240)
    expect(after > before, f"it went from version {before} to {after}")
    return f"{how}: from version {before} to {after}"


@FAULTS.step("down and up resume", 8)
def down_and_up(project: Project) -> str:
    project.compose("down", "--timeout", "120", timeout=400)
    expect(not project.containers(), "containers remain")
    project.up("--wait", "--wait-timeout", f"{240 * PATIENCE:.0f}")
    line = r"resumed from \S+: (\d+) steps, version (\d+)"
    found = until("it says from where", 120, lambda: re.search(line, project.logs("learner")))
    expect(int(found[2]) > 1, found[0])
    after = project.learns_on()
    expect(after > int(found[2]), f"after {found[0]} it is at version {after}")
    return found[0]
