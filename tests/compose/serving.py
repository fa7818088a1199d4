"""Gateways, the dashboard and deployments beside a run."""

from __future__ import annotations

import json
from urllib.parse import quote

from project import IMAGE, ROOT, Project, docker, expect, get, until
from scenario import ENDLESS, Scenario

TOKEN = "compose-test"
PORTS = dict.fromkeys(("WARREN_GATEWAY_PORT", "WARREN_DASHBOARD_PORT", "WARREN_DEPLOY_PORT"), "0")
SERVING = Scenario(
    "serving",
    {"EXPERIMENT": "cartpole_gamecore", "WARREN_OVERRIDES": ENDLESS, "WARREN_DASHBOARD_TOKEN": TOKEN, **PORTS},
)


@SERVING.step("games play by the gateway, and are learned from", 8)
def play_by_gateway(project: Project) -> str:
    project.compose("--profile", "*", "up", "--detach", "--no-build", timeout=600)
    until("the gateway is healthy", 240, lambda: project.runs_well("gateway"))
    games = f"{ROOT}/examples/gamecore/game.py:/tmp/game.py:ro"
    network = ("--network", f"{project.name}_browser")
    project.run_beside(
        "games", *network, "--volume", games, IMAGE, "python", "/tmp/game.py", "--url", "http://gateway:8000"
    )
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
    docker("stop", f"{project.name}-games")
    project.compose("--profile", "*", "stop", timeout=400)
    served = ("gateway", "deploy", "dashboard", "learner")
    ended = {name: project.container(name)["State"]["ExitCode"] for name in served}
    expect(set(ended.values()) == {0}, f"exit statuses are {ended}")
    return "status 0"
