"""Runs that finish, an update that a stop waits for, exit statuses, and a league."""

from __future__ import annotations

import json
import re
import time

from logins import each_has_its_own, refused
from project import Failed, Project, expect, get, kill, until
from scenario import ENDLESS, Scenario

CARTPOLE = Scenario("cartpole")
UPDATE = Scenario("update", {"WARREN_ACTORS": "1"})
STATUS = Scenario("status", {"WARREN_RESTART": "no"})
KUHN = Scenario("kuhn", {"EXPERIMENT": "kuhn"})


def outcome(project: Project, learner: str = "learner") -> dict[str, object]:
    """Return the outcome that a learner wrote to the folder of the run cartpole/compose."""
    found = json.loads(project.file(learner, "/app/runs/cartpole/compose/outcome.json"))
    return dict(found)


@CARTPOLE.step("CartPole reaches its goal", 15)
def reach_the_goal(project: Project) -> str:
    project.up()
    until("the learner's work is done", 900, lambda: "its work is done" in project.logs("learner"))
    found = outcome(project)
    expect(found["state"] == "solved", f"the run is {found['state']}")
    until("the actors idle too", 60, lambda: project.logs("actor").count("its work is done") == 2)
    expect(refused(project) == [], f"roles were refused {refused(project)}")
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


LONG = 20.0  # s that an update should take


def with_epochs(epochs: int) -> str:
    return f"{ENDLESS} algorithm.epochs={epochs} algorithm.minibatch_size=64 checkpoint_every=3600"


@UPDATE.step("an update is made to take 20 s", 15)
def lengthen(project: Project) -> str:
    epochs = 200
    tried: list[str] = []
    while len(tried) < 5:  # machines differ, and a busy one varies in speed
        project.environment["WARREN_OVERRIDES"] = with_epochs(epochs)
        project.up("learner", "actor")
        version, since = project.learns_on(), time.monotonic()
        later = until("two more updates", 240, lambda: (found := project.version()) >= version + 2 and found)  # noqa: B023
        took = (time.monotonic() - since) / (later - version)
        tried.append(f"{took:.0f} s by {epochs} epochs")
        if took >= LONG:
            return tried[-1]
        epochs = int(epochs * 1.5 * LONG / took) + 1
    raise Failed(f"an update takes {', '.join(tried)}")


@UPDATE.step("it is finished at docker compose stop", 6)
def finish(project: Project) -> str:
    version = project.learns_on()

    def computes() -> bool:
        ask = ("rabbitmqctl", "--quiet", "list_queues", "messages_unacknowledged", "name")
        held = project.compose("exec", "--no-TTY", "rabbitmq", *ask)
        return re.search(r"^[1-9]\d*\s+warren\.compose\.learner\.main$", held, re.MULTILINE) is not None

    until("the learner holds the segments of the next one", 60, computes)
    began = time.monotonic()
    project.compose("stop", timeout=400)
    took = time.monotonic() - began
    statuses = {one["Name"]: one["State"]["ExitCode"] for one in project.containers("learner")}
    expect(set(statuses.values()) == {0}, f"exit statuses are {statuses}")
    stopped = re.findall(r"stopped: .* weight version (\d+)", project.logs("learner"))
    expect(bool(stopped) and int(stopped[-1]) > version, f"it stopped at versions {stopped}, after version {version}")
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
    project.environment["WARREN_OVERRIDES"] = "device=cuda"  # for the learner alone: an actor that ended would stop all
    status, said = project.run("up", "--no-build", "--exit-code-from", "learner", timeout=400)
    expect(status == 2, f"status {status}: {said[-1500:]}")
    wrong = re.search(r"device='cuda' is not there.*", said)
    expect(wrong is not None, said[-1500:])
    return f"status 2: {wrong[0] if wrong else ''}"


LEARNERS = ["learner-main", "learner-main-exploiter", "learner-league-exploiter-0", "learner-league-exploiter-1"]


@KUHN.step("Kuhn's league plays, learns and is scored", 12)
def league(project: Project) -> str:
    project.up()
    for learner in LEARNERS:
        until(f"{learner} learns", 400, lambda name=learner: project.version(name))  # type: ignore[misc]
    score = until("a score", 300, lambda: re.search(r"exploitability\D*([\d.]+).*", project.logs("evaluator")))
    shown = project.compose("run", "--rm", "--no-TTY", "tools", "python", "-m", "league.show")
    expect("main_exploiter" in shown, shown)
    return str(score[0])[:100]


@KUHN.step("an actor may neither read segments nor change the league", 4)
def own_logins(project: Project) -> str:
    # service -> (role of its user, may read the learner's queue, may change the league)
    allowed = {
        "actor": ("actor", False, False), "evaluator": ("evaluator", False, False),
        "learner-main": ("learner", True, False), "league": ("league", False, True),
    }  # fmt: skip
    users = each_has_its_own(project, "kuhn", allowed)
    expected = ", ".join(f"warren.kuhn.{role}" for role in ("actor", "evaluator", "league", "learner", "watcher"))
    expect(users == expected, users)
    for words in (("workers.dead", "list"), ("workers.doctor", "--run", "kuhn")):
        project.compose("run", "--rm", "--no-TTY", "tools", "python", "-m", *words)
    return f"{users}; version {project.learns_on('learner-main')}"


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
    expect(not wrong, f"wrong exit statuses: {wrong}")
    project.compose("start", timeout=400)
    return f"stopped in {took:.0f} s; version {project.learns_on('learner-main', 300)}"
