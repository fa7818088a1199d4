"""Tests of the stack file in docker/swarm: Docker reads it, and what it names exists in this repository."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from support.waiting import PATIENCE
from test_compose import DOCKER, ROOT, dockerfile, made, services, substituted

from workers.config import staying
from workers.config.schema import Config, from_hydra
from workers.config.validation import verify
from workers.rights.container_files import MOUNTED

FILE = DOCKER / "swarm" / "stack.yml"
ROLES = ("learner", "actor")


def stack(**environment: str) -> dict[str, Any]:
    """Return the stack file under this environment."""
    return yaml.safe_load(substituted(re.sub(r"^ *#.*$", "", FILE.read_text(), flags=re.MULTILINE), environment))


def test_docker_reads_the_stack_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    command = ["docker", "stack", "config", "--compose-file", FILE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if "is not a docker command" in done.stderr:
        pytest.skip("this docker has no docker stack config")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(yaml.safe_load(done.stdout)["services"]) == set(stack()["services"])


def test_each_roles_command_is_a_valid_configuration_of_the_named_run(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "conf" / "local").mkdir(exist_ok=True)
    shutil.copy(FILE.parent / stack()["configs"]["settings"]["file"], tmp_path / "conf" / "local" / "default.yaml")
    workdir = re.findall(r"^WORKDIR (\S+)$", dockerfile(), re.MULTILINE)[-1]
    found = stack(WARREN_ACTORS="9")["services"]
    with hydra.initialize_config_dir(str(tmp_path / "conf"), version_base="1.3"):
        for name in ROLES:
            service = found[name]
            *module, overrides = service["command"]
            assert module == ["python", "-m", f"workers.{name}"]
            assert service["configs"] == [{"source": "settings", "target": f"{workdir}/conf/local/default.yaml"}]
            config = from_hydra(hydra.compose(name, [overrides]))
            verify(config, name)
            assert (config.run, config.trial) == ("cartpole", "cartpole")
            assert found["actor"]["deploy"]["replicas"] == config.actors == 9


def test_images_are_those_of_compose_and_the_role_s_can_be_another() -> None:
    compose, found = services(), stack()["services"]
    assert set(found) == {"rabbitmq", "redis", *ROLES}
    assert all(found[name]["image"] == compose[name]["image"] for name in found)
    other = stack(WARREN_IMAGE="registry/warren:1", WARREN_ACTORS="9")["services"]
    assert {other[name]["image"] for name in ROLES} == {"registry/warren:1"}
    assert other["actor"]["deploy"]["replicas"] == 9


def test_each_service_has_the_secrets_of_its_own_login_alone(tmp_path: Path) -> None:
    found, files = stack(), made(tmp_path)
    assert all(secret == {"external": True, "name": secret["name"]} for secret in found["secrets"].values())
    used = set()
    for name, service in found["services"].items():
        wanted = {path.partition("/")[2] for path in files if path.startswith(f"{name}/")}
        assert {one["target"] for one in service["secrets"]} == {f"{MOUNTED}/{file}" for file in wanted}
        for one in service["secrets"]:
            file = one["target"].rpartition("/")[2]
            assert found["secrets"][one["source"]]["name"] == f"warren-{name}-{file}"
            used.add(one["source"])
        # The first file tells RabbitMQ to read the second.
        read = {path.rpartition("/")[2] for path in re.findall(rf"{MOUNTED}/[\w.-]+", str({**service, "secrets": ()}))}
        assert wanted - read == ({"definitions.json"} if name == "rabbitmq" else set())
    assert used == set(found["secrets"])


def test_nothing_is_published_and_what_is_kept_stays_on_one_node() -> None:
    found = stack()
    assert found["networks"] == {"servers": {"internal": True}}
    workdir = re.findall(r"^WORKDIR (\S+)$", dockerfile(), re.MULTILINE)[-1]
    kept = set()
    for name, service in found["services"].items():
        assert "ports" not in service and service["networks"] == ["servers"]
        volumes = [one.partition(":") for one in service["volumes"] if isinstance(one, str)]
        kept |= {volume for volume, _, _ in volumes}
        # Swarm's load balancer drops connections that are idle for long.
        assert (service["deploy"].get("endpoint_mode") == "dnsrr") == (name not in ROLES)
        at_home = service["deploy"].get("placement") == {"constraints": ["node.labels.warren == home"]}
        assert at_home == bool(volumes), name
        assert name != "learner" or volumes == [("runs", ":", f"{workdir}/{Config().folder}")]
        assert "memory" in service["deploy"]["resources"]["limits"]
    assert kept == set(found["volumes"])


def test_roles_run_without_privileges_and_are_started_again() -> None:
    for name in ROLES:
        service = stack()["services"][name]
        assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)
        # They end with status 0 when their node shuts down.
        assert service["deploy"]["restart_policy"]["condition"] == "any"
        assert service["environment"][staying.VARIABLE] in staying.STARTED_AGAIN


def test_redis_may_hold_half_of_its_memory() -> None:
    redis = stack()["services"]["redis"]
    assert redis["command"][redis["command"].index("--maxmemory") + 1] == "2gb"
    assert redis["deploy"]["resources"]["limits"]["memory"] == "4G"
