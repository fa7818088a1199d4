"""The scenarios of `make compose-test`: each is a project of Compose, and a list of steps in order."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from urllib.parse import quote

from project import IMAGE, ROOT, Project, command, docker, expect, get, kill, now, until

Step = Callable[[Project], str]  # it returns what was seen, in a few words
ENDLESS = "env.goal=null total_steps=1000000000 checkpoint_every=5"
STOP, START = "COMPOSE_TEST_ENGINE_STOP", "COMPOSE_TEST_ENGINE_START"  # shell commands, for an engine that is yours


@dataclass(frozen=True)
class Scenario:
    """Steps that share a project; each has so many minutes at most."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[str, float, Step]] = field(default_factory=list)

    def step(self, name: str, minutes: float) -> Callable[[Step], Step]:
        """Add the function to the steps."""

        def add(function: Step) -> Step:
            self.steps.append((name, minutes, function))
            return function

        return add


CARTPOLE = Scenario("cartpole")
FAULTS = Scenario("faults", {"WARREN_OVERRIDES": ENDLESS})
UPDATE = Scenario("update", {"WARREN_ACTORS": "1"})
STATUS = Scenario("status", {"WARREN_RESTART": "no"})
KUHN = Scenario("kuhn", {"EXPERIMENT": "kuhn"})
TOKEN = "compose-test"
PORTS = dict.fromkeys(("WARREN_GATEWAY_PORT", "WARREN_DASHBOARD_PORT", "WARREN_DEPLOY_PORT"), "0")
SERVING = Scenario(
    "serving",
    {"EXPERIMENT": "cartpole_gamecore", "WARREN_OVERRIDES": ENDLESS, "WARREN_DASHBOARD_TOKEN": TOKEN, **PORTS},
)
SCENARIOS = [CARTPOLE, FAULTS, UPDATE, STATUS, KUHN, SERVING]


def outcome(project: Project, learner: str = "learner") -> dict[str, object]:
    """Return the outcome that a learner has written into the run's folder."""
    found = json.loads(project.file(learner, "/app/runs/cartpole/compose/outcome.json"))
    return dict(found)


@CARTPOLE.step("CartPole reaches its goal", 15)
def reach_the_goal(project: Project) -> str:
    project.up()
    until("the learner's work is done", 900, lambda: "its work is done" in project.logs("learner"))
    found = outcome(project)
    expect(found["state"] == "solved", f"the run is {found['state']}")
    until("the actors idle too", 60, lambda: project.logs("actor").count("its work is done") == 2)
    return f"{found['steps']} steps"


@CARTPOLE.step("Flower's pages are open, its API is closed", 3)
def flower_answers(project: Project) -> str:
    address = project.port("flower", 5555)
    until("Flower is healthy", 120, lambda: project.runs_well("flower"))
    status, page = get(address)
    expect(status == 200 and "actor-0" in page, f"{status}: {page[:300]}")
    status, _ = get(f"{address}/api/workers")
    expect(status == 401, f"the API answers {status}")
    return address


@CARTPOLE.step("another up finds the run over", 3)
def begun_again(project: Project) -> str:
    project.compose("down", "--timeout", "120")
    project.up()
    until("the learner says so", 120, lambda: "is solved already" in project.logs("learner"))
    until("it idles", 60, lambda: "its work is done" in project.logs("learner"))
    return "solved already"


@FAULTS.step("it learns", 5)
def begin(project: Project) -> str:
    project.up("--wait", "--wait-timeout", "240")
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
    expect(len(gone) == 3, f"{len(gone)} actors left")
    ends = ["events", "--since", since, "--until", now(), "--filter", "event=die", "--format", "{{json .Actor}}"]
    told = [json.loads(line) for line in docker(*ends).splitlines()]
    statuses = [one["Attributes"]["exitCode"] for one in told if one["ID"] in gone]
    expect(statuses == ["0", "0", "0"], f"they ended with {statuses}")
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
        command("sh", "-c", os.environ[STOP], timeout=240)
        until("the engine is away", 240, lambda: command("docker", "info")[0])
        command("sh", "-c", os.environ[START], timeout=240)
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
    expect(not project.containers(), "containers are left")
    project.up("--wait", "--wait-timeout", "240")
    line = r"resumed from \S+: (\d+) steps, version (\d+)"
    found = until("it says from where", 120, lambda: re.search(line, project.logs("learner")))
    expect(int(found[2]) > 1, found[0])
    after = project.learns_on()
    expect(after > int(found[2]), f"after {found[0]} it is at version {after}")
    return found[0]


LONG = 20.0  # s that an update is to take


def with_epochs(epochs: int) -> str:
    return f"{ENDLESS} algorithm.epochs={epochs} algorithm.minibatch_size=64 checkpoint_every=3600"


def seconds_of_updates(project: Project) -> list[float]:
    """Return the s from one report of the learner to the next."""
    log = project.compose("logs", "--no-color", "--no-log-prefix", "--timestamps", "learner").splitlines()
    told = [datetime.fromisoformat(line[:19]) for line in log if "weight version" in line]
    return [(later - sooner).total_seconds() for sooner, later in pairwise(told)]


@UPDATE.step("an update is made to take 20 s", 8)
def lengthen(project: Project) -> str:
    epochs = 500
    project.environment["WARREN_OVERRIDES"] = with_epochs(epochs)
    project.up("--wait", "--wait-timeout", "240")
    version, since = project.learns_on(), time.monotonic()
    later = until("two more updates", 240, lambda: (found := project.version()) >= version + 2 and found)
    each = (time.monotonic() - since) / (later - version)
    project.remove()
    epochs = int(epochs * max(1.0, 1.5 * LONG / each)) + 1
    project.environment["WARREN_OVERRIDES"] = with_epochs(epochs)
    project.up("--wait", "--wait-timeout", "240")
    until("three updates", 300, lambda: len(seconds_of_updates(project)) >= 2)
    took = min(seconds_of_updates(project)[1:])
    expect(took >= LONG, f"an update takes {took:.0f} s of {epochs} epochs")
    return f"{took:.0f} s, by {epochs} epochs"


@UPDATE.step("it is finished at docker compose stop", 6)
def finish(project: Project) -> str:
    version = until("an update is done", 120, lambda: project.version(since=now()))
    learner = project.container("learner")["Id"]

    def computes() -> bool:
        percent = docker("stats", "--no-stream", "--format", "{{.CPUPerc}}", learner)
        return float(percent.rstrip("%")) > 20

    until("the next one is computed", 60, computes)
    began = time.monotonic()
    project.compose("stop", timeout=400)
    took = time.monotonic() - began
    statuses = {one["Name"]: one["State"]["ExitCode"] for one in project.containers("learner")}
    expect(set(statuses.values()) == {0}, f"ended with {statuses}")
    stopped = re.findall(r"stopped: .* weight version (\d+)", project.logs("learner"))
    expect(bool(stopped) and int(stopped[-1]) > version, f"it stopped at {stopped}, and had version {version}")
    project.compose("start", timeout=400)
    line = rf"resumed from \S+: \d+ steps, version {stopped[-1]}\b"
    found = until("it goes on from there", 120, lambda: re.search(line, project.logs("learner")))
    return f"the stop took {took:.0f} s; {found[0]}"


@STATUS.step("--exit-code-from learner is 0 at the end", 8)
def status_of_success(project: Project) -> str:
    project.environment["WARREN_OVERRIDES"] = "total_steps=6000 env.goal=null"
    status, said = project.run("up", "--no-build", "--exit-code-from", "learner", timeout=400)
    expect(status == 0, f"status {status}: {said[-1500:]}")
    return "status 0"


@STATUS.step("--exit-code-from learner is the learner's after a failure", 8)
def status_of_failure(project: Project) -> str:
    project.remove()
    project.environment["WARREN_OVERRIDES"] = "algorithm.epochs=0"
    status, said = project.run("up", "--no-build", "--exit-code-from", "learner", timeout=400)
    expect(status == 2, f"status {status}: {said[-1500:]}")
    wrong = re.search(r"algorithm\.epochs.*", said)
    expect(wrong is not None, said[-1500:])
    return f"status 2: {wrong[0] if wrong else ''}"


LEARNERS = ["learner-main", "learner-main-exploiter", "learner-league-exploiter-0", "learner-league-exploiter-1"]


@KUHN.step("Kuhn's league plays, learns and is scored", 12)
def league(project: Project) -> str:
    project.up()
    for learner in LEARNERS:
        until(f"{learner} learns", 400, lambda name=learner: project.version(name))  # type: ignore[misc]
    score = until("a score", 300, lambda: re.search(r"exploitability\D*([\d.]+).*", project.logs("evaluator")))
    shown = project.compose("exec", "--no-TTY", "actor", "python", "-m", "league.show", "--run", "kuhn")
    expect("main_exploiter" in shown, shown)
    return str(score[0])[:100]


@KUHN.step("the league's worker is killed and comes back", 8)
def killed_league(project: Project) -> str:
    before = project.container("league")
    kill(before)
    until("it is started again", 240, lambda: project.container("league")["RestartCount"] > before["RestartCount"])
    return f"version {project.learns_on('learner-main')}"


@KUHN.step("all stop well, and go on", 8)
def stopped_league(project: Project) -> str:
    began = time.monotonic()
    project.compose("stop", timeout=400)
    took = time.monotonic() - began
    ended = {one["Name"]: one["State"]["ExitCode"] for one in project.containers()}
    wrong = {name: status for name, status in ended.items() if status and not re.search("rabbitmq|passwords", name)}
    expect(not wrong, f"ended with {wrong}")
    project.compose("start", timeout=400)
    return f"stopped in {took:.0f} s; version {project.learns_on('learner-main', 300)}"


@SERVING.step("games play by the gateway, and are learned from", 8)
def play_by_gateway(project: Project) -> str:
    project.compose("--profile", "*", "up", "--detach", "--no-build", timeout=600)
    until("the gateway is healthy", 240, lambda: project.runs_well("gateway"))
    games = f"{ROOT}/examples/gamecore/game.py:/tmp/game.py:ro"
    network = f"{project.name}_browser"
    label = f"com.docker.compose.project={project.name}"  # so that it is removed with the others
    docker(
        "run", "--detach", "--name", f"{project.name}-games", "--label", label, "--label",
        "com.docker.compose.service=games", "--label", "com.docker.compose.oneoff=False", "--network", network,
        "--volume", games, IMAGE, "python", "/tmp/game.py", "--url", "http://gateway:8000",
    )  # fmt: skip
    status, said = get(project.port("gateway", 8000))
    expect(status == 200 and '"sessions"' in said, f"{status}: {said[:300]}")
    return f"version {project.learns_on(seconds=240)}"


@SERVING.step("the dashboard's page follows the run", 5)
def follow_by_page(project: Project) -> str:
    until("the dashboard is healthy", 120, lambda: project.runs_well("dashboard"))
    address, shown = project.port("dashboard", 8050), {"authorization": f"Bearer {TOKEN}"}
    expect(get(address)[0] in (401, 403), "the page is open to anyone")
    status, page = get(address, **shown)
    expect(status == 200 and "<html" in page, f"{status}: {page[:300]}")
    (run,) = json.loads(get(f"{address}/api/runs", **shown)[1])["runs"]

    def steps() -> float:
        (told,) = json.loads(get(f"{address}/api/curves?run={quote(run['run'], safe='')}", **shown)[1]).values()
        return max((one for learner in told["learners"].values() for one in learner.get("steps", ())), default=0.0)

    first = until("it has a curve", 120, steps)
    later = until("the curve goes on", 120, lambda: (found := steps()) > first and found)
    return f"{run['run']}: {first} steps, then {later}"


@SERVING.step("a deployment follows newer versions", 5)
def follow_by_deployment(project: Project) -> str:
    until("the deployment is healthy", 180, lambda: project.runs_well("deploy"))
    address = project.port("deploy", 8000)

    def version() -> int:
        return int(json.loads(get(address)[1])["version"])

    first = until("it tells its version", 30, version)
    later = until("a newer one is in service", 120, lambda: (found := version()) > first and found)
    return f"version {first}, then {later}"


@SERVING.step("gateway and deployment end well", 5)
def end_of_serving(project: Project) -> str:
    docker("rm", "--force", f"{project.name}-games")
    project.compose("--profile", "*", "stop", timeout=400)
    served = ("gateway", "deploy", "dashboard", "learner")
    ended = {name: project.container(name)["State"]["ExitCode"] for name in served}
    expect(set(ended.values()) == {0}, f"ended with {ended}")
    return "status 0"
