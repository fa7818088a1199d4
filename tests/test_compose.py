"""docker-compose.yml and its image, as far as can be told without an engine."""

from __future__ import annotations

import ast
import re
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml

from workers.config.command_line import check_overrides
from workers.config.schema import Config, Sampling, from_hydra
from workers.config.validation import verify
from workers.runtime.session import topology_of

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = (ROOT / "docker-compose.yml").read_text()
ROLES, SERVERS = ("learner", "actor", "flower"), ("rabbitmq", "redis")
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<how>:?[-?])(?P<word>[^}]*))?\}")
SECRETS = {match["name"] for match in VARIABLE.finditer(COMPOSE) if match["name"].endswith("_PASSWORD")}


def substituted(text: str, environment: Mapping[str, str]) -> str:
    """`text` with Compose's variables filled in; a required one that is missing fails."""

    def value(match: re.Match[str]) -> str:
        name, how, word = match["name"], match["how"] or "", match["word"] or ""
        given = environment.get(name)
        if given is not None and not (how.startswith(":") and given == ""):
            return given
        assert how.endswith("-"), f"{name} is not given: {word}"
        return word

    return VARIABLE.sub(value, text)


def services(**environment: str) -> dict[str, Any]:
    """The services under this environment; passwords are given."""
    filled = substituted(COMPOSE, {**dict.fromkeys(SECRETS, "secret"), **environment})
    return dict(yaml.safe_load(filled)["services"])


def config_of(role: str, **environment: str) -> Config:
    """What `python -m workers.ROLE` gets from its command in the file."""
    python, flag, module, *overrides = shlex.split(services(**environment)[role]["command"])
    assert (python, flag, module) == ("python", "-m", f"workers.{role}")
    assert check_overrides(role, overrides) == 0
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return from_hydra(hydra.compose(role, overrides))


def test_it_has_servers_a_learner_actors_and_flower() -> None:
    assert set(services()) == {*ROLES, *SERVERS}


@pytest.mark.parametrize("role", ROLES)
def test_the_command_of_a_role_is_a_valid_configuration(role: str) -> None:
    verify(config_of(role), role)


@pytest.mark.parametrize(
    "environment",
    [{}, {"WARREN_ACTORS": "4"}, {"WARREN_RUN": "night"}, {"WARREN_OVERRIDES": "sampling=streaming batch_segments=3"}],
    ids=str,
)
def test_all_roles_declare_the_same_topology(environment: dict[str, str]) -> None:
    learner, *others = (config_of(role, **environment) for role in ROLES)
    for other in others:
        assert topology_of(other) == topology_of(learner)
        assert (other.actors, other.sampling, other.task_events) == (learner.actors, learner.sampling, True)


def test_the_overrides_of_the_environment_reach_every_role() -> None:
    for role in ROLES:
        config = config_of(role, WARREN_OVERRIDES="sampling=streaming env.goal=100")
        assert (config.sampling, config.env.goal) == (Sampling.streaming, 100.0)


def test_as_many_actors_start_as_a_round_takes() -> None:
    for environment in ({}, {"WARREN_ACTORS": "5"}):
        replicas = int(services(**environment)["actor"]["deploy"]["replicas"])
        assert replicas == config_of("learner", **environment).actors


def test_actors_can_be_replicated() -> None:
    assert not {"container_name", "ports", "hostname"} & set(services()["actor"])


def test_a_run_outlives_its_containers() -> None:
    mounts = dict(volume.split(":") for volume in services()["learner"]["volumes"])
    workdir = re.findall(r"^WORKDIR (\S+)$", dockerfile(), re.MULTILINE)[-1]
    assert mounts == {"runs": f"{workdir}/{config_of('learner').folder}"}
    assert {"runs", "redis"} <= set(yaml.safe_load(COMPOSE)["volumes"])


def test_every_role_waits_for_healthy_servers() -> None:
    found = services()
    for role in ROLES:
        assert found[role]["depends_on"] == {server: {"condition": "service_healthy"} for server in SERVERS}
    assert all("test" in found[server]["healthcheck"] for server in (*SERVERS, "flower"))


def test_only_flower_is_published_and_only_to_this_machine() -> None:
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert published == {"flower": ["127.0.0.1:5555:5555"]}
    assert config_of("flower").flower_port == 5555
    networks = yaml.safe_load(COMPOSE)["networks"]
    assert networks["servers"] == {"internal": True}
    assert all(service["networks"] == ["servers"] for name, service in services().items() if name != "flower")


def test_no_password_is_in_the_file_and_none_has_a_default() -> None:
    assert sorted(SECRETS) == ["WARREN_RABBITMQ_PASSWORD", "WARREN_REDIS_PASSWORD"]
    for match in VARIABLE.finditer(COMPOSE):
        if match["name"] in SECRETS:
            assert match["how"] == ":?"
            assert "docker/env.sh" in match["word"]
    # With all variables taken out, no URL holds a password and no variable of that name a value.
    bare = yaml.safe_load(VARIABLE.sub("", COMPOSE))["services"]
    for name, service in bare.items():
        for variable, value in service.get("environment", {}).items():
            assert not re.search(r"://[^:/@]*:[^@]+@", value or ""), f"{name}: {variable}"
            assert not (re.search("PASS|AUTH|SECRET|TOKEN", variable) and value), f"{name}: {variable}"
    assert bare["redis"]["command"][:3] == ["redis-server", "--requirepass", ""]


def test_roles_run_without_privileges() -> None:
    assert re.findall(r"^USER (\S+)$", dockerfile(), re.MULTILINE)[-1] == "warren"
    for role in ROLES:
        service = services()[role]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_a_stop_signal_reaches_python() -> None:
    """No shell stands between the engine and Python: Compose runs a command line without one, unless it asks for it."""
    assert "ENTRYPOINT" not in dockerfile()
    for role in ROLES:
        assert shlex.split(services()[role]["command"])[0] == "python"


def test_the_image_holds_every_package_that_a_role_imports() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", dockerfile(), re.MULTILINE))
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    wanted, seen = ["workers.learner", "workers.actor", "workers.flower"], set()
    while wanted:
        seen.add(module := wanted.pop())
        for path in (ROOT / f"{module.replace('.', '/')}.py", ROOT / module.replace(".", "/") / "__init__.py"):
            if path.exists():
                wanted += {name for name in imported(path) if (ROOT / name.partition(".")[0]).is_dir()} - seen
    packages = {module.partition(".")[0] for module in seen}
    assert packages >= {"workers", "tasks", "agents"}
    assert packages | {"conf"} <= copied
    assert copied <= admitted


def imported(path: Path) -> set[str]:
    """Modules that a file may import: `from a import b` may be module a or a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_what_is_installed_is_pinned() -> None:
    installs = re.findall(r"pip install (.*)$", dockerfile(), re.MULTILINE)
    assert installs
    assert all("--constraint constraints.txt" in line for line in installs)
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[^\w-]", line, maxsplit=1)[0].lower() for line in project["dependencies"]} <= pinned


def test_secrets_stay_out_of_git_and_of_the_image() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith(("#", "!"))]
    assert rules[0] == "*"


def env_file(path: Path) -> dict[str, str]:
    """What docker/env.sh writes to `path`."""
    subprocess.run([ROOT / "docker" / "env.sh", path], check=True, capture_output=True)
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_the_passwords_are_random_and_their_owners_alone(tmp_path: Path) -> None:
    one, other = env_file(tmp_path / "one"), env_file(tmp_path / "other")
    assert set(one) == SECRETS
    assert len({*one.values(), *other.values()}) == 2 * len(SECRETS)
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in one.values())
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"one", "other"}


def test_passwords_that_exist_are_kept(tmp_path: Path) -> None:
    assert env_file(tmp_path / "env") == env_file(tmp_path / "env")


def dockerfile() -> str:
    """The Dockerfile with continued lines joined."""
    return (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
