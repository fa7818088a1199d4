"""Tests of the manifests in docker/kubernetes without a cluster: they fit their schemas, and what they name exists."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from support import kustomize
from test_compose import DOCKER, ROOT, dockerfile, made, services

from workers.config import overrides, staying
from workers.config.name_value import parse
from workers.config.schema import Config, Sampling, from_hydra
from workers.config.validation import verify
from workers.deployment.settings import DeployConfig
from workers.doctor import target
from workers.doctor.findings import Level
from workers.runtime.session import topology_of

FOLDER = DOCKER / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
BUILT = {overlay: kustomize.build(FOLDER / "overlays" / overlay) for overlay in OVERLAYS}
SERVERS = ("rabbitmq", "redis")
OLDEST = "1.28"  # the first release that labels a StatefulSet's pods with their numbers
DEPLOYMENT = kustomize.build(FOLDER / "deployment")
overlays = pytest.mark.parametrize("overlay", OVERLAYS)
Resource = dict[str, Any]
FIELD = re.compile(r"\$\([A-Z_]+\)")  # a field of the pod within a command

# Fields of KEDA 2.12's resource definitions that are used here: no package provides its schemas.
KEDA: dict[str, Resource] = {
    "TriggerAuthentication": {"secretTargetRef": [{"parameter": str, "name": str, "key": str}]},
    "ScaledObject": {
        "scaleTargetRef": {"name": str},
        "minReplicaCount": int,
        "maxReplicaCount": int,
        "pollingInterval": int,
        "cooldownPeriod": int,
        "advanced": {
            "scalingModifiers": {"formula": str, "target": str, "metricType": str},
            "horizontalPodAutoscalerConfig": {
                "behavior": {
                    direction: {
                        "stabilizationWindowSeconds": int,
                        "policies": [{"type": str, "value": int, "periodSeconds": int}],
                    }
                    for direction in ("scaleUp", "scaleDown")
                }
            },
        },
        "triggers": [
            {
                "type": str,
                "name": str,
                "metadata": {  # settings of the RabbitMQ scaler; KEDA accepts only strings
                    "protocol": str,
                    "vhostName": str,
                    "queueName": str,
                    "mode": str,
                    "value": str,
                    "excludeUnacknowledged": str,
                },
                "authenticationRef": {"name": str},
            }
        ],
    },
}


def of_kind(overlay: str, *kinds: str) -> list[Resource]:
    return [one for one in BUILT[overlay] if one["kind"] in kinds]


def workloads(overlay: str) -> dict[str, Resource]:
    """Return name -> pod specification of all workloads."""
    found = of_kind(overlay, *kustomize.WORKLOADS)
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in found}


def containers(overlay: str) -> Iterator[tuple[str, Resource]]:
    for name, pod in workloads(overlay).items():
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            yield name, container


@pytest.fixture(scope="module")
def conf_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function: overlay -> the folder `conf` of its pods."""

    @cache
    def make(overlay: str) -> Path:
        folder = tmp_path_factory.mktemp(overlay) / "conf"
        shutil.copytree(ROOT / "conf", folder)
        (given,) = of_kind(overlay, "ConfigMap")
        (folder / "local").mkdir(exist_ok=True)
        (folder / "local" / "default.yaml").write_text(given["data"]["default.yaml"])
        return folder

    return make


@pytest.fixture(scope="module")
def composed(conf_of: Any) -> Any:
    """Return a function: overlay -> {name: configuration} of its roles, from their commands and the pods' settings."""

    @cache
    def compose(overlay: str) -> dict[str, Config]:
        with hydra.initialize_config_dir(str(conf_of(overlay)), version_base="1.3"):
            return {name: from_hydra(hydra.compose(role, overrides)) for name, role, overrides in commands(overlay)}

    return compose


def commands(overlay: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (name, role, overrides) of each role."""
    for name, pod in workloads(overlay).items():
        if name not in SERVERS:
            (container,) = pod["containers"]
            python, flag, module, *overrides = container["command"]
            assert (python, flag) == ("python", "-m")
            yield name, module.removeprefix("workers."), [FIELD.sub("0", one) for one in overrides]


@overlays
@pytest.mark.parametrize("version", [OLDEST, "latest"])
def test_every_resource_fits_the_schema_of_its_kind(overlay: str, version: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate of the extra dev is not installed")
    version = schemas.latest_version() if version == "latest" else version
    for one in [*BUILT[overlay], *(DEPLOYMENT if overlay == "small" else ())]:
        if one["apiVersion"].startswith("keda.sh/"):
            assert one["apiVersion"] == "keda.sh/v1alpha1"
            assert list(unfitting(one["spec"], KEDA[one["kind"]])) == []
        else:
            schemas.validate(one, version, strict=True)


def unfitting(given: Any, schema: Any, path: str = "spec") -> Iterator[str]:
    """Yield the paths of values that the schema lacks or has with another type."""
    if isinstance(schema, dict) and isinstance(given, dict):
        yield from (f"{path}.{key}" for key in given.keys() - schema.keys())
        for key in given.keys() & schema.keys():
            yield from unfitting(given[key], schema[key], f"{path}.{key}")
    elif isinstance(schema, list) and isinstance(given, list):
        for index, item in enumerate(given):
            yield from unfitting(item, schema[0], f"{path}[{index}]")
    elif not isinstance(schema, type) or type(given) is not schema:
        yield path


@overlays
def test_kustomize_itself_builds_the_same(overlay: str) -> None:
    theirs = kustomize.by_kubectl(FOLDER / "overlays" / overlay)
    if theirs is None:
        pytest.skip("kubectl is not installed")
    (settings,) = (one["metadata"]["name"] for one in theirs if one["kind"] == "ConfigMap")
    assert re.fullmatch(r"settings-\w{10}", settings)
    unhashed = yaml.safe_load(yaml.safe_dump(theirs).replace(settings, "settings"))

    def order(one: Resource) -> tuple[str, str]:
        return one["kind"], one["metadata"]["name"]

    assert sorted(unhashed, key=order) == sorted(BUILT[overlay], key=order)


@overlays
def test_the_command_of_each_role_is_a_valid_configuration_of_the_one_run(overlay: str, composed: Any) -> None:
    found = composed(overlay)
    roles = {name: role for name, role, _ in commands(overlay)}
    first = next(iter(found.values()))
    for name, config in found.items():
        verify(replace(config, device="cpu"), roles[name])  # this machine may lack the learner's GPU
        assert config.run is not None and (config.run, config.trial) == (first.run, first.trial)
        assert topology_of(config) == topology_of(first)
        assert (config.actors, config.sampling, config.env.id) == (first.actors, first.sampling, first.env.id)


@overlays
def test_each_role_has_a_doctor_that_needs_no_run_folder(
    overlay: str, conf_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overrides, "CONF", conf_of(overlay))
    (tmp_path / Config().folder).touch()  # no run folder can be made here
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # of these, the image has only the Actor
    monkeypatch.chdir(tmp_path)
    roles = {name: role for name, role, _ in commands(overlay)}
    for name, role in roles.items():
        (doctor,) = workloads(overlay)[name]["initContainers"]
        assert doctor["command"][:5] == ["python", "-m", "workers.doctor", "--role", role]
        assert doctor["securityContext"]["readOnlyRootFilesystem"] is True
        mounts = {mount["mountPath"] for mount in doctor["volumeMounts"]}
        assert mounts == {"/run/warren", "/app/conf/local", "/tmp"}
        _, findings = target.settings(doctor["command"][5:], None, None, role)
        assert [one for one in findings if one.level is not Level.ok] == []


@overlays
def test_each_player_has_a_learner(overlay: str, composed: Any) -> None:
    found = composed(overlay)
    players = sorted(config.player for name, config in found.items() if name.startswith("learner"))
    league = found["learner" if "learner" in found else "actor"].league
    assert players == (["main"] if league is None else sorted(league["players"]))
    assert {"league", "evaluator"} <= set(found) if league else not {"league", "evaluator"} & set(found)


@overlays
def test_actors_are_scaled_by_a_queue_of_the_run_or_are_as_many_as_a_round_takes(overlay: str, composed: Any) -> None:
    if overlay == "gateway":
        (gateway,) = of_kind(overlay, "Deployment")
        assert gateway["spec"]["replicas"] == composed(overlay)["gateway"].actors
        return
    config = composed(overlay)["actor"]
    (actor,) = (one for one in of_kind(overlay, "Deployment") if one["metadata"]["name"] == "actor")
    scaled = of_kind(overlay, "ScaledObject")
    if not scaled:
        assert actor["spec"]["replicas"] == config.actors
        counts = {one["metadata"]["name"]: one["spec"]["replicas"] for one in of_kind(overlay, "Deployment")}
        assert counts.get("env") == (config.env_runners if config.sampling is Sampling.served else None)
        return
    assert "replicas" not in actor["spec"]  # otherwise each `kubectl apply` would reset it
    (spec,) = (one["spec"] for one in scaled)
    assert spec["scaleTargetRef"]["name"] == "actor"
    topology, triggers = topology_of(config), spec["triggers"]
    if config.sampling is Sampling.gathered:
        assert [one["metadata"]["queueName"] for one in triggers] == [topology.actor_queue().name]
        assert spec["maxReplicaCount"] == config.actors
        return
    assert {one["metadata"]["queueName"] for one in triggers} == {topology.learner_queue().name}
    formula = spec["advanced"]["scalingModifiers"]["formula"]
    assert set(re.findall(r"[a-z]\w*", formula)) == {one["name"] for one in triggers}
    more, less = (int(re.findall(rf"waiting {sign} (\d+)", formula)[0]) for sign in "<>")
    assert (4 * more, 4 * less) == (config.batch_segments, 3 * (config.batch_segments or 0))


def test_images_are_those_of_compose(overlay: str = "small") -> None:
    compose = services()
    for name, container in containers(overlay):
        expected = compose[name]["image"] if name in SERVERS else compose["passwords"]["image"]
        assert container["image"] == expected


@overlays
def test_each_pod_has_its_own_login_alone_and_none_is_in_a_manifest(overlay: str, tmp_path: Path) -> None:
    files, roles = made(tmp_path), {name: role for name, role, _ in commands(overlay)}
    assert not of_kind(overlay, "Secret")
    for name, pod in workloads(overlay).items():
        (secret,) = (volume["secret"] for volume in pod["volumes"] if "secret" in volume)
        assert secret["secretName"] == roles.get(name, name)
        assert {f"{secret['secretName']}/{item['key']}" for item in secret["items"]} <= set(files)
        (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["mountPath"] == "/run/warren")
        assert mount["readOnly"] is True
        named = set(re.findall(r"/run/warren/([\w.-]+)", str(pod)))
        imported = {"definitions.json"} if name == "rabbitmq" else set()  # as its rabbitmq.conf says
        assert named | imported == {item["path"] for item in secret["items"]}
    for one in of_kind(overlay, "TriggerAuthentication"):
        for reference in one["spec"]["secretTargetRef"]:
            assert f"{reference['name']}/{reference['key']}" in files
    assert not re.search(r"://[^:/@\s']*:[^@\s']+@", str(BUILT[overlay]))


@overlays
def test_urls_lead_to_services_that_only_the_cluster_reaches(overlay: str, tmp_path: Path) -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in of_kind(overlay, "Service")}
    assert set(found) == {*SERVERS, *({"gateway"} & set(workloads(overlay)))}
    assert all(spec.get("type", "ClusterIP") == "ClusterIP" for spec in found.values())
    assert not of_kind(overlay, "Ingress") and "hostPort" not in str(BUILT[overlay])
    (namespace,) = of_kind(overlay, "Namespace")
    files = made(tmp_path, "warren.svc")
    for name in ("actor/broker-url", "actor/redis-url", "scaler/management-url"):
        host, port = re.findall(r"@([\w.]+):(\d+)/", files[name])[0]
        server, _, domain = host.partition(".")
        assert domain == f"{namespace['metadata']['name']}.svc"
        assert int(port) in [one["port"] for one in found[server]["ports"]]


@overlays
def test_nothing_is_reached_that_is_not_named(overlay: str) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(overlay, "NetworkPolicy")}
    assert policies["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
              for one in of_kind(overlay, *kustomize.WORKLOADS)}  # fmt: skip
    assert {name for name in labels if labels[name].get("reaches") == "servers"} == set(labels) - set(SERVERS)
    for name, spec in policies.items():
        wanted = spec["podSelector"].get("matchLabels", {})
        assert any(wanted.items() <= given.items() for given in labels.values()), name


@overlays
def test_every_container_runs_without_privileges_and_says_what_it_needs(overlay: str) -> None:
    (user,) = re.findall(r"useradd --uid (\d+)", dockerfile())
    for name, pod in workloads(overlay).items():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert name in SERVERS or pod["securityContext"]["runAsUser"] == int(user)
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
    for name, container in containers(overlay):
        context = container["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})
        assert name == "rabbitmq" or context["readOnlyRootFilesystem"] is True
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@overlays
def test_each_pod_has_time_to_end_and_servers_have_probes(overlay: str) -> None:
    for name, pod in workloads(overlay).items():
        keeps = name in SERVERS or name.startswith(("learner", "league"))
        assert pod["terminationGracePeriodSeconds"] >= (60 if keeps else 2 * Config().grace)
        first, *others = pod["containers"]
        assert not others
        if name in SERVERS:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(first)
        else:  # a role that cannot go on ends by itself; doctor checks its servers before it starts
            assert [one["name"] for one in pod["initContainers"]] == ["doctor"]
            assert pod["shareProcessNamespace"] is True


@overlays
def test_budgets_keep_parts_of_a_run_when_nodes_are_drained(overlay: str) -> None:
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]["app"]
              for one in of_kind(overlay, *kustomize.WORKLOADS)}  # fmt: skip
    budgets: dict[str, Resource] = {}
    for one in of_kind(overlay, "PodDisruptionBudget"):
        selector = one["spec"]["selector"]
        chosen = selector.get("matchLabels", {}).values() or selector["matchExpressions"][0]["values"]
        budgets |= dict.fromkeys(chosen, one["spec"])
    alone = {"league", "evaluator", "flower"}  # one pod each: a budget would only block draining of its node
    assert set(budgets) == set(labels.values()) - alone
    assert all(spec["maxUnavailable"] in (1, "25%", "50%") for spec in budgets.values())


@overlays
def test_actors_that_are_scaled_finish_what_they_play(overlay: str) -> None:
    if of_kind(overlay, "ScaledObject"):
        assert workloads(overlay)["actor"]["terminationGracePeriodSeconds"] >= 3600


def test_a_deployment_only_reads_the_learner_s_volume_and_answers_games_alone() -> None:
    found = {one["kind"]: one for one in DEPLOYMENT}
    assert set(found) == {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}
    pod = found["Deployment"]["spec"]["template"]
    assert all(pod["metadata"]["labels"] == found[kind]["spec"][where]["matchLabels"]
               for kind, where in (("NetworkPolicy", "podSelector"), ("PodDisruptionBudget", "selector")))  # fmt: skip
    assert found["NetworkPolicy"]["spec"].get("egress") is None
    (container,) = pod["spec"]["containers"]
    assert container["command"][:3] == ["python", "-m", "workers.deploy"]
    config = parse(DeployConfig, container["command"][3:])
    assert (config.run, config.gateway.port) == ("runs", container["ports"][0]["containerPort"])
    assert f"AS {container['image'].partition(':')[0].removeprefix('warren-')}\n" in dockerfile()
    learner = next(one for one in of_kind("small", "StatefulSet") if one["metadata"]["name"] == "learner")
    (claim,) = learner["spec"]["volumeClaimTemplates"]
    claimed = pod["spec"]["volumes"][0]["persistentVolumeClaim"]
    assert claimed == {"claimName": f"{claim['metadata']['name']}-learner-0", "readOnly": True}
    same = ("securityContext", "automountServiceAccountToken", "enableServiceLinks", "shareProcessNamespace")
    actor = workloads("small")["actor"]
    assert {key: pod["spec"][key] for key in same} == {key: actor[key] for key in same}
    assert container["securityContext"] == actor["containers"][0]["securityContext"]


@overlays
def test_a_role_whose_run_is_over_stays_idle(overlay: str) -> None:
    for name, pod in workloads(overlay).items():
        if name not in (*SERVERS, "flower"):  # Flower never ends by itself
            environment = {one["name"]: one["value"] for one in pod["containers"][0]["env"] if "value" in one}
            assert environment[staying.VARIABLE] in staying.STARTED_AGAIN


@overlays
def test_redis_may_hold_half_of_its_memory(overlay: str) -> None:
    (redis,) = workloads(overlay)["redis"]["containers"]
    assert redis["resources"]["limits"]["memory"] == "4Gi"
    assert redis["command"][redis["command"].index("--maxmemory") + 1] == "2gb"
    assert redis["command"][redis["command"].index("--maxmemory-policy") + 1] == "noeviction"


@overlays
def test_persistent_data_is_on_volumes_of_its_own(overlay: str) -> None:
    workdir = re.findall(r"^WORKDIR (\S+)$", dockerfile(), re.MULTILINE)[-1]
    for one in of_kind(overlay, *kustomize.WORKLOADS):
        name, claims = one["metadata"]["name"], one["spec"].get("volumeClaimTemplates", ())
        mounts = {mount["name"]: mount["mountPath"] for mount in
                  one["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}  # fmt: skip
        assert [mounts[claim["metadata"]["name"]] for claim in claims] == (
            [] if name in ("actor", "env", "flower", "gateway") else
            [{"rabbitmq": "/var/lib/rabbitmq/mnesia", "redis": "/data"}.get(name, f"{workdir}/{Config().folder}")]
        )  # fmt: skip
        assert name in SERVERS or mounts["settings"] == f"{workdir}/conf/local"


@overlays
def test_every_variable_that_is_set_is_read(overlay: str) -> None:
    sources = "\n".join(path.read_text() for folder in ("workers", "warren") for path in (ROOT / folder).rglob("*.py"))
    for name, container in containers(overlay):
        for variable in container.get("env", ()) if name not in SERVERS else ():
            read = variable["name"].removesuffix("_FILE")
            assert f'"{read}"' in sources or f"$({read})" in str(container["command"]), read
