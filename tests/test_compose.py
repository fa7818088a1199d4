"""Tests of docker-compose.yml and its image that need no engine."""

from __future__ import annotations

import ast
import copy
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.python_source import nodes
from support.waiting import PATIENCE

import warren
from warren.errors import ConfigurationError
from workers.config import staying
from workers.config.name_value import parse
from workers.config.overrides import compose, settings_of
from workers.config.schema import Config, Sampling, from_hydra
from workers.config.validation import verify
from workers.deployment.settings import DeployConfig
from workers.rights import container_files
from workers.runtime.session import topology_of

ROOT = Path(__file__).resolve().parent.parent
DOCKER = ROOT / "docker"
COMPOSE, ROLES_FILE = ROOT / "docker-compose.yml", DOCKER / "roles.yml"
EXPERIMENTS = sorted(path.stem for path in (DOCKER / "experiments").glob("*.yml"))
LEAGUES = ["kuhn", "leduc", "liars_dice", "rps", "spinning_top"]
PASSWORDS = ("WARREN_RABBITMQ_PASSWORD", "WARREN_REDIS_PASSWORD")
ONE_LEARNER, SERVERS = {"learner", "actor", "flower"}, {"rabbitmq", "redis"}
SERVED = {"WARREN_ENV_RUNNERS": "4", "WARREN_ACTORS": "1"}
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<how>:?[-?+])(?P<word>[^${}]*))?\}")


def substituted(text: str, environment: Mapping[str, str]) -> str:
    """Return `text` with Compose's variables filled in, innermost first; check that required ones are given."""

    def value(match: re.Match[str]) -> str:
        name, how, word = match["name"], match["how"] or "", match["word"] or ""
        given = environment.get(name)
        there = given is not None and not (how.startswith(":") and given == "")
        if how.endswith("+"):
            return word if there else ""
        if there:
            return str(given)
        assert how.endswith("-"), f"{name} is not given: {word}"
        return word

    while (filled := VARIABLE.sub(value, text)) != text:
        text = filled
    return text


def read(path: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the services of a file, its includes and extensions resolved, as Compose reads them."""
    file = yaml.safe_load(substituted(path.read_text(), environment))
    found: dict[str, Any] = {}
    for included in file.get("include", ()):
        found |= read(path.parent / included, environment)
    for name, service in file.get("services", {}).items():
        base = service.pop("extends", None)
        if base is not None:
            assert not {"command", "volumes"} & set(service)  # Compose would merge the volumes
            service = {**read(path.parent / base["file"], environment)[base["service"]], **service}
        assert name not in found
        found[name] = service
    return found


def services(**environment: str) -> dict[str, Any]:
    """Return the services that start under this environment without a profile."""
    return copy.deepcopy(read_once(tuple(sorted(environment.items()))))


@functools.cache
def read_once(environment: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return `services`, cached: tests read the same ones many times."""
    found = read(COMPOSE, dict(environment))
    started = {name: one for name, one in found.items() if not one.get("profiles")}
    return {name: one for name, one in started.items() if int(one.get("deploy", {}).get("replicas", 1))}


def readers(**environment: str) -> dict[str, Any]:
    """Return the services that start only with their profile, without `tools` for commands by hand."""
    return {name: one for name, one in read(COMPOSE, environment).items() if one.get("profiles") and name != "tools"}


def roles(**environment: str) -> dict[str, Any]:
    """Return the services that run the image, without the one that makes passwords."""
    found = services(**environment)
    return {name: service for name, service in found.items() if name not in SERVERS | {"passwords"}}


def config_of(service: str, **environment: str) -> Config:
    """Return the configuration that the service's command gives to its role."""
    role, overrides = command_of(service, **environment)
    found = compose(role, overrides)
    assert found is not None
    return from_hydra(settings_of(found))


def command_of(service: str, **environment: str) -> tuple[str, list[str]]:
    """Return a service's role and overrides."""
    found = services(**environment)[service]
    python, flag, module, *own = found["entrypoint"]
    assert (python, flag) == ("python", "-m")
    return module.removeprefix("workers."), [*own, *shlex.split(found["command"])]


def test_it_has_servers_a_learner_actors_and_flower() -> None:
    assert set(services()) == {*ONE_LEARNER, *SERVERS, "passwords"}


def test_every_experiment_can_be_named() -> None:
    experiments = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}
    # The image lacks these games:
    games_of_their_own = {
        "atari", "fightingice", "fightingice_league", "football", "football_league", "halfcheetah_ddpg",
        "halfcheetah_sac", "halfcheetah_td3", "hopper_ddpg", "hopper_sac", "hopper_td3", "minatar_breakout", "pong",
        "pong_league", "simple_speaker_listener", "simple_speaker_listener_mappo", "simple_speaker_listener_qmix",
        "simple_spread", "simple_spread_mappo", "simple_spread_qmix", "simple_spread_vdn", "slimevolley",
    }  # fmt: skip
    assert sorted(experiments - games_of_their_own) == EXPERIMENTS


@pytest.mark.parametrize("experiment", LEAGUES)
def test_a_league_has_a_league_worker_an_evaluator_and_a_learner_for_each_player(experiment: str) -> None:
    found = roles(EXPERIMENT=experiment)
    learners = [name for name in found if name.startswith("learner")]
    assert set(found) - set(learners) == {"league", "evaluator", "actor", "flower"}
    league = config_of("league", EXPERIMENT=experiment).league
    assert league is not None
    assert sorted(config_of(name, EXPERIMENT=experiment).player for name in learners) == sorted(league["players"])


@pytest.mark.parametrize("experiment", ["", *EXPERIMENTS])
def test_each_experiment_composes_and_has_its_packages_in_the_image(experiment: str) -> None:
    verified = set()
    for name in roles(EXPERIMENT=experiment):
        role, _ = command_of(name, EXPERIMENT=experiment)
        config = config_of(name, EXPERIMENT=experiment)
        assert (config.run, config.trial) == (experiment or "compose", experiment or "compose")
        if role in verified:  # a league's learners differ only in their players' names
            continue
        verified.add(role)
        try:
            verify(config, role)
        except ConfigurationError as error:  # these tests do not need the image's packages
            lacking = [set(re.findall(r"'\.\[(\w+)\]'", problem)) for problem in error.problems]
            assert all(extras and extras <= image_extras() for extras in lacking), error.problems


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WARREN_ACTORS": "4"},
        {"WARREN_RUN": "night", "EXPERIMENT": "kuhn"},
        {"WARREN_OVERRIDES": "sampling=streaming batch_segments=3"},
    ],
    ids=str,
)
def test_all_roles_declare_the_same_topology(environment: dict[str, str]) -> None:
    first, *others = (config_of(role, **environment) for role in roles(**environment))
    for other in others:
        assert topology_of(other) == topology_of(first)
        assert (other.actors, other.sampling, other.task_events) == (first.actors, first.sampling, True)


@pytest.mark.parametrize("experiment", ["", "kuhn"])
def test_a_served_run_has_as_many_env_runners_as_it_says(experiment: str) -> None:
    environment = {**SERVED, "EXPERIMENT": experiment}
    found = roles(**environment)
    assert set(found) - set(roles(EXPERIMENT=experiment)) == {"env"}
    assert int(found["env"]["deploy"]["replicas"]) == 4
    for name in found:
        config = config_of(name, **environment)
        verify(config, command_of(name, **environment)[0])
        assert (config.sampling, config.env_runners, config.actors) == (Sampling.served, 4, 1)


def test_everything_starts_again_with_the_engine_and_after_any_outage() -> None:
    for experiment in ("", "kuhn"):
        for service in services(EXPERIMENT=experiment).values():
            assert service["restart"] == "unless-stopped"
    for service in roles(EXPERIMENT="kuhn").values():
        assert service["environment"][staying.VARIABLE] == service["restart"] in staying.STARTED_AGAIN


def test_a_script_can_have_roles_that_end() -> None:
    for service in roles(WARREN_RESTART="no").values():
        assert service["environment"][staying.VARIABLE] == service["restart"] == "no"
    assert "no" not in staying.STARTED_AGAIN


def seconds(span: str) -> float:
    """Return the seconds of a span as Compose writes it: 30s, 2m."""
    return float(span[:-1]) * {"s": 1, "m": 60}[span[-1]]


def test_each_service_has_time_to_end_well() -> None:
    for experiment in ("", "kuhn"):
        for name, service in services(EXPERIMENT=experiment).items():
            keeps = name in SERVERS or name.startswith(("learner", "league"))
            least = 60 if keeps else 2 * Config().grace
            assert name == "passwords" or seconds(service["stop_grace_period"]) >= least, name


def test_a_server_with_much_to_read_back_has_time_to_start() -> None:
    for name in SERVERS:
        assert seconds(services()[name]["healthcheck"]["start_period"]) >= 180


def test_redis_refuses_writes_at_a_bound_that_can_be_set() -> None:
    for given, bound in (({}, "4gb"), ({"WARREN_REDIS_MEMORY": "512mb"}, "512mb")):
        command = services(**given)["redis"]["command"]
        assert command[command.index("--maxmemory") + 1] == bound
        assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def test_images_of_servers_are_of_one_minor_version_and_can_be_others() -> None:
    for name in SERVERS:
        assert re.fullmatch(r"\w+:\d+\.\d+-\w+", services()[name]["image"])
    others = services(RABBITMQ_IMAGE="mine/rabbitmq:1", REDIS_IMAGE="mine/redis:2")
    assert {others[name]["image"] for name in SERVERS} == {"mine/rabbitmq:1", "mine/redis:2"}
    script = (DOCKER / "test.sh").read_text()
    assert all(services()[name]["image"] in script for name in SERVERS)
    bases = set(re.findall(r"^FROM (\S+)", dockerfile(), re.MULTILINE))
    assert bases - set(re.findall(r"^FROM \S+ AS (\S+)$", dockerfile(), re.MULTILINE)) == {"python:3.11-slim-bookworm"}


def test_the_overrides_of_the_environment_reach_every_role() -> None:
    for role in ONE_LEARNER:
        config = config_of(role, WARREN_OVERRIDES="sampling=streaming env.goal=100")
        assert (config.sampling, config.env.goal) == (Sampling.streaming, 100.0)


def test_as_many_actors_start_as_a_round_takes() -> None:
    for environment in ({}, {"WARREN_ACTORS": "5"}):
        replicas = int(services(**environment)["actor"]["deploy"]["replicas"])
        assert replicas == config_of("learner", **environment).actors


def test_actors_and_env_runners_can_be_replicated() -> None:
    for name in ("actor", "env"):
        assert not {"container_name", "ports", "hostname"} & set(services(**SERVED)[name])


def test_a_run_outlives_its_containers() -> None:
    workdir = re.findall(r"^WORKDIR (\S+)$", dockerfile(), re.MULTILINE)[-1]
    for name, service in roles(EXPERIMENT="kuhn").items():
        keeps = name.startswith(("learner", "league", "evaluator"))
        runs = f"runs:{workdir}/{config_of(name).folder}" if name in ONE_LEARNER else f"runs:{workdir}/runs"
        assert (runs in service["volumes"]) == keeps
    volumes = set(yaml.safe_load(COMPOSE.read_text())["volumes"])
    assert {name for name in volumes if not name.startswith("login-")} == {"runs", "rabbitmq", "redis", "passwords"}
    rabbitmq = services()["rabbitmq"]
    assert "rabbitmq:/var/lib/rabbitmq" in rabbitmq["volumes"]
    assert rabbitmq["hostname"] == "rabbitmq"  # part of the name of its data folder


def test_every_role_waits_for_healthy_servers_and_they_for_passwords() -> None:
    found, made = services(EXPERIMENT="kuhn"), {"passwords": {"condition": "service_healthy"}}
    healthy = {server: {"condition": "service_healthy"} for server in SERVERS}
    for name in roles(EXPERIMENT="kuhn"):
        assert found[name]["depends_on"] == made | healthy
    made["passwords"]["restart"] = True  # type: ignore[assignment]  # servers read users when they start
    assert all(found[server]["depends_on"] == made for server in SERVERS)
    assert all("test" in found[server]["healthcheck"] for server in (*SERVERS, "flower", "passwords"))


def test_only_flower_is_published_and_only_to_this_machine() -> None:
    found = services(EXPERIMENT="kuhn")
    assert {name: service["ports"] for name, service in found.items() if "ports" in service} == {
        "flower": ["127.0.0.1:5555:5555"]
    }
    assert config_of("flower").flower_port == 5555
    networks = yaml.safe_load(COMPOSE.read_text())["networks"]
    assert networks["servers"] == {"internal": True}
    inside = {name: service for name, service in found.items() if name not in ("flower", "passwords")}
    assert all(service["networks"] == ["servers"] for service in inside.values())
    assert found["passwords"]["network_mode"] == "none"


def test_what_is_served_to_games_and_browsers_is_published_to_this_machine_alone() -> None:
    found = {**readers(), "gateway": services(EXPERIMENT="cartpole_gamecore")["gateway"]}
    assert {name: one["ports"] for name, one in found.items()} == {
        "dashboard": ["127.0.0.1:8050:8050"], "deploy": ["127.0.0.1:8001:8000"], "gateway": ["127.0.0.1:8000:8000"]
    }  # fmt: skip
    config = config_of("gateway", EXPERIMENT="cartpole_gamecore").gateway
    assert (config.address, config.port) == ("0.0.0.0", 8000)


def test_the_dashboard_and_deployments_only_read_the_run() -> None:
    for name, one in readers().items():
        assert (one["profiles"], one["volumes"], one["networks"]) == ([name], ["runs:/app/runs:ro"], ["browser"])
        assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
        assert "/run/warren" not in str(one)


def test_the_command_of_a_deployment_is_one_that_it_takes() -> None:
    python, flag, module, *overrides = shlex.split(readers(WARREN_DEPLOY_OVERRIDES="mode=greedy")["deploy"]["command"])
    assert (python, flag, module) == ("python", "-m", "workers.deploy")
    config = parse(DeployConfig, overrides)
    assert (config.run, config.follow, config.mode, config.gateway.address) == ("runs", 5.0, "greedy", "0.0.0.0")


def test_the_gpu_s_file_changes_the_build_and_the_learner_alone() -> None:
    more = yaml.safe_load(substituted((DOCKER / "gpu.yml").read_text(), {}))["services"]
    assert set(more) == {"passwords", "learner"}
    assert more["passwords"] == {"build": {"args": {"TORCH_INDEX": ""}}}
    *entry, device = more["learner"]["entrypoint"]
    assert entry == services()["learner"]["entrypoint"] and device == "device=cuda"


def test_images_say_what_they_are() -> None:
    labels = re.findall(r"org\.opencontainers\.image\.(\w+)=", dockerfile())
    assert Counter(labels) == dict.fromkeys(("title", "description", "version", "revision"), 2)
    assert set(re.findall(r"^ARG VERSION=(.*)$", dockerfile(), re.MULTILINE)) == {warren.__version__}


def test_no_password_is_in_a_file_an_environment_or_a_command() -> None:
    given = dict.fromkeys(PASSWORDS, "hunter2")
    for experiment in ("", "kuhn"):
        for name, service in services(EXPERIMENT=experiment, **given).items():
            if name != "passwords":
                assert "hunter2" not in str(service), name
        for name, service in services(EXPERIMENT=experiment).items():
            assert not re.search(r"://[^:/@']*:[^@']+@", str(service)), name
    assert {name for name in PASSWORDS if services()["passwords"]["environment"][name]} == set()


def test_each_server_and_role_has_its_own_login_alone() -> None:
    everything, mounted = yaml.safe_load(COMPOSE.read_text()), set()
    for environment in ({"EXPERIMENT": "kuhn"}, {"EXPERIMENT": "cartpole_gamecore"}, SERVED):
        found = services(**environment)
        maker = found.pop("passwords")
        for name, service in found.items():
            (login,) = [one for one in service["volumes"] if re.match("passwords|login-", one)]
            role = name if name in SERVERS else command_of(name, **environment)[0]
            assert login == f"login-{role}:/run/warren:ro", name
            mounted.add(role)
        all_of_them = {one for one in everything["volumes"] if one.startswith("login-")}
        each = {f"{one}:/run/warren/{one.removeprefix('login-')}" for one in all_of_them}
        assert {*maker["volumes"]} == {"passwords:/run/warren", *each}
    assert all_of_them == {f"login-{role}" for role in (*mounted, "launcher")}


def test_commands_by_hand_have_the_launcher_s_login_and_start_with_nothing_else() -> None:
    for environment in ({}, {"EXPERIMENT": "kuhn"}, {"WARREN_RUN": "night"}):
        tools, actor = read(COMPOSE, environment)["tools"], services(**environment)["actor"]
        assert tools["profiles"] == ["tools"]
        assert tools["volumes"] == ["login-launcher:/run/warren:ro", "runs:/app/runs"]
        assert tools["environment"]["WARREN_RUN"] == config_of("actor", **environment).run
        for key in ("image", "networks", "init", "read_only", "tmpfs", "cap_drop", "security_opt"):
            assert tools[key] == actor[key], key
        urls = {name: path for name, path in tools["environment"].items() if name.endswith("_FILE")}
        assert urls.items() <= actor["environment"].items()


def test_users_are_those_of_the_run_that_the_roles_join() -> None:
    for environment in ({}, {"EXPERIMENT": "kuhn"}, {"EXPERIMENT": "kuhn", "WARREN_RUN": "night"}, SERVED):
        shell, flag, line = services(**environment)["passwords"]["command"]
        assert (shell, flag) == ("sh", "-c")
        python, m, module, option, run, verb, folder, *more = shlex.split(line.partition(" && ")[0])
        assert (python, m, module, option, verb) == ("python", "-m", "workers.rights", "--run", "files")
        assert (run, folder) == (config_of("actor", **environment).run, container_files.MOUNTED)
        assert more == (["--served"] if environment is SERVED else [])


def test_roles_run_without_privileges() -> None:
    assert re.findall(r"^USER (\S+)$", dockerfile(), re.MULTILINE) == ["warren", "warren"]  # both images'
    for service in roles(EXPERIMENT="kuhn").values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_a_stop_signal_reaches_python() -> None:
    """Compose runs a command without a shell unless the command names one."""
    assert "ENTRYPOINT" not in dockerfile()
    assert all(service["entrypoint"][0] == "python" for service in roles(EXPERIMENT="kuhn").values())


def test_the_image_holds_every_package_that_a_role_imports() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", dockerfile(), re.MULTILINE))
    wanted, seen = [f"workers.{command_of(name, EXPERIMENT='kuhn')[0]}" for name in roles(EXPERIMENT="kuhn")], set()
    while wanted:
        seen.add(module := wanted.pop())
        for path in (ROOT / f"{module.replace('.', '/')}.py", ROOT / module.replace(".", "/") / "__init__.py"):
            if path.exists():
                wanted += {name for name in imported(path) if (ROOT / name.partition(".")[0]).is_dir()} - seen
    packages = {module.partition(".")[0] for module in seen}
    assert packages >= {"workers", "tasks", "agents", "league", "envs"}
    assert packages | {"conf"} <= copied
    for copied_path in re.findall(r"^COPY (?!--from)(\S+) \S+$", dockerfile(), re.MULTILINE):
        assert reaches_the_engine(f"{copied_path}/x.py" if (ROOT / copied_path).is_dir() else copied_path), copied_path


def test_the_stage_that_builds_horovod_has_what_the_build_imports() -> None:
    stage = dockerfile().partition(" AS horovod\n")[2].partition("\nFROM ")[0]
    copied = set(re.findall(r"^COPY (\S+) \1$", stage, re.MULTILINE))
    wanted, seen = ["workers/learning/allreduce/build_horovod.py"], set()
    while wanted:
        seen.add(path := wanted.pop())
        modules = {f"{name.replace('.', '/')}.py" for name in imported(ROOT / path)}
        wanted += {name for name in modules if (ROOT / name).exists()} - seen
    assert copied == seen
    assert {"horovod", "games"} <= image_extras()


def test_the_image_has_each_c_source_compiled_for_every_processor() -> None:
    copied = re.findall(r"^COPY (\w+) \1$", dockerfile(), re.MULTILINE)
    sources = {path.relative_to(ROOT).as_posix() for folder in copied for path in (ROOT / folder).rglob("*.c")}
    assert sources
    stage = dockerfile().partition(" AS compiled\n")[2].partition("\nFROM ")[0]
    command = re.search(r"^RUN python -m warren\.compiled (.*)$", stage, re.MULTILINE)
    assert command is not None and {*command[1].split()} == sources
    taken = re.findall(r"^COPY --from=compiled /app/(\S+) \1$", dockerfile(), re.MULTILINE)
    assert {*taken} == {f"{Path(source).parent}/built" for source in sources}


def imported(path: Path) -> set[str]:
    """Return modules that a file may import: for `from a import b`, both a and a.b."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_installed_packages_are_pinned() -> None:
    installs = re.findall(r"pip install (.*)$", dockerfile(), re.MULTILINE)
    assert installs
    assert all("--constraint constraints.txt" in line for line in installs)
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in image_extras() for one in project["optional-dependencies"][extra]),
    ]
    assert {re.split(r"[^\w-]", line, maxsplit=1)[0].lower().replace("_", "-") for line in wanted} <= pinned


def test_secrets_stay_out_of_git_and_of_the_image() -> None:
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {".env", "conf/local/"} <= set(ignored)
    assert not reaches_the_engine(".git/config")
    for rule in ignored:
        path = rule.strip("/").replace("*", "x")
        below = [] if "/" in rule.strip("/") or rule.startswith("/") else ["conf/", "workers/launch/", "docker/"]
        for place in ["", *below]:
            assert not reaches_the_engine(place + path), place + path
            assert not reaches_the_engine(f"{place}{path}/default.yaml"), place + path


def reaches_the_engine(path: str) -> bool:
    """Return whether .dockerignore admits a file: the last rule for it, or for a folder above it, decides."""
    parts, inside = path.split("/"), True
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
            if any(re.fullmatch(pattern, one) for one in above):
                inside = line.startswith("!")
    return inside


def test_rules_of_dockerignore_are_resolved_as_docker_does() -> None:
    found = {path: reaches_the_engine(path) for path in (
        "conf/env/cartpole.yaml", "conf/local/default.yaml", "conf/local.yaml", "examples/gamecore/actor.py",
        "docker/test.sh", "README.md", "workers/launch/__pycache__/hosts.cpython-311.pyc",
    )}  # fmt: skip
    assert [path for path, inside in found.items() if inside] == [
        "conf/env/cartpole.yaml", "conf/local.yaml", "examples/gamecore/actor.py",
    ]  # fmt: skip


def image_extras() -> set[str]:
    """Return the extras of pyproject.toml that the image has."""
    return set(re.findall(r'extras\["(\w+)"\]', dockerfile()))


def test_the_proof_on_an_engine_kills_each_service() -> None:
    """`make compose-test` runs the proof itself."""
    proof = (ROOT / "tests" / "compose" / "faults.py").read_text()
    (killed,) = (ast.literal_eval(one) for one in re.findall(r"^for each in (\(.*\)):$", proof, re.MULTILINE))
    assert set(killed) == set(services())


@pytest.mark.parametrize("experiment", ["", "kuhn"])
def test_docker_compose_reads_the_file_as_these_tests_do(experiment: str) -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=PATIENCE, check=False).returncode:
        pytest.skip("this docker has no docker compose")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "EXPERIMENT": experiment}
    command = ["docker", "compose", "--file", COMPOSE, "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)["services"]
    ours = services(EXPERIMENT=experiment)
    assert set(theirs) - {"env"} == set(ours)
    for name, service in ours.items():
        for key in ("image", "restart", "entrypoint", "depends_on", "environment", "read_only"):
            if isinstance(service.get(key), str | list | bool):
                assert theirs[name][key] == service[key], (name, key)
            elif key == "depends_on" and key in service:
                assert {one: how["condition"] for one, how in theirs[name][key].items()} == {
                    one: how["condition"] for one, how in service[key].items()
                }
            elif key == "environment" and key in service:
                assert set(theirs[name][key]) == set(service[key])


def made(folder: Path, domain: str = "") -> dict[str, str]:
    """Write the files of containers; return their texts by name, FOLDER/NAME."""
    names = container_files.write(folder, "kuhn", domain=domain, environment={})
    return {name: (folder / name).read_text().strip() for name in names}


def test_the_files_that_services_read_are_made_for_them(tmp_path: Path) -> None:
    files = made(tmp_path)
    for environment in ({"EXPERIMENT": "kuhn"}, {"EXPERIMENT": "cartpole_gamecore"}, SERVED):
        for name, service in services(**environment).items():
            if name != "passwords":
                role = name if name in SERVERS else command_of(name, **environment)[0]
                read_by_it = set(re.findall(r"/run/warren/([\w.-]+)", str(service)))
                assert read_by_it and {f"{role}/{one}" for one in read_by_it} <= set(files), name


def dockerfile() -> str:
    """Return the Dockerfile with continued lines joined."""
    return (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
