"""Pods of docker/kubernetes without a kubelet: the engine runs each container as its manifest says.

Commands, users, groups, environments, mounts, read-only root file systems, capabilities, memory limits, grace
periods, init containers, HTTP probes and Redis are the manifest's. RabbitMQ is Compose's, with the users of each
overlay's run. What only a cluster has is left out: network policies, storage classes, scaling, GPUs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from project import FIGURES, IMAGE, ROOT, Project, command, docker, expect, until
from scenario import Scenario

SERVING = "warren-serving:compose-test"
PODS = Scenario("pods")
GROUP = "10001"
BUILD = """
import json, sys
sys.path.insert(0, "/source/tests")
from pathlib import Path
from support import kustomize
print(json.dumps(kustomize.build(Path("/source/docker/kubernetes") / sys.argv[1])))
"""
LOGINS = (  # files as in volumes of Secrets: only root and the group can read them
    "python -m workers.rights --run {run} files /to {served} && "
    f"chown -R root:{GROUP} /to && chmod -R u=rX,g=rX,o= /to"
)
ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).status)"
SLEPT = 128 + signal.SIGTERM
UNITS = {"Mi": "m", "Gi": "g"}
Resource = dict[str, Any]


def manifests(folder: str) -> list[Resource]:
    """Return the resources of a folder of docker/kubernetes."""
    mounted = f"{ROOT}:/source:ro"
    return list(json.loads(docker("run", "--rm", "--volume", mounted, IMAGE, "python", "-c", BUILD, folder)))


@dataclass
class Pods:
    """The pods of one folder of manifests, beside a project's RabbitMQ."""

    project: Project
    folder: str
    started: list[str] = field(default_factory=list)  # names of containers

    def __post_init__(self) -> None:
        self.found = manifests(self.folder)
        self.settings = Path(tempfile.mkdtemp(prefix="warren-settings-"))
        self.settings.chmod(0o755)
        for one in self.found:
            for name, text in one["data"].items() if one["kind"] == "ConfigMap" else ():
                (self.settings / name).write_text(text)
        self.secrets = Path(tempfile.mkdtemp(prefix="warren-secrets-"))

    def make_users(self) -> None:
        """Write folders that stand for Secrets, and import the users of the overlay's run into Compose's RabbitMQ."""
        settings = (self.settings / "default.yaml").read_text()
        (run,) = re.findall(r"^run: (\S+)", settings, re.MULTILINE)
        line = LOGINS.format(run=run, served="--served" if "sampling: served" in settings else "")
        docker("run", "--rm", "--user", "root", "--volume", f"{self.secrets}:/to", IMAGE, "sh", "-c", line)
        broker, copied = self.project.container("rabbitmq")["Id"], "/tmp/definitions.json"
        docker("cp", f"{self.secrets}/rabbitmq/definitions.json", f"{broker}:{copied}")
        docker("exec", broker, "sh", "-c", f"chmod 0644 {copied} && rabbitmqctl --quiet import_definitions {copied}")

    def workloads(self) -> dict[str, Resource]:
        """Return the specifications of Deployments and StatefulSets, by name."""
        kinds = ("Deployment", "StatefulSet")
        return {one["metadata"]["name"]: one["spec"] for one in self.found if one["kind"] in kinds}

    def start(self, name: str, replicas: int = 1) -> None:
        """Start pods of a workload: run the init containers of each to their end, then start its container."""
        pod = self.workloads()[name]["template"]["spec"]
        for number in range(replicas):
            for first in pod.get("initContainers", ()):
                given = self._arguments(name, number, pod, first)
                status, said = command("docker", "run", "--rm", *given, timeout=240)
                expect(status == 0, f"{name}'s {first['name']} ended with status {status}: {said[-1500:]}")
            (container,) = pod["containers"]
            wait = str(pod["terminationGracePeriodSeconds"])
            given = self._arguments(name, number, pod, container)
            self.started.append(self.project.run_beside(f"{name}-{number}", "--stop-timeout", wait, *given))

    def runs(self, name: str) -> bool:
        """Return True while a container runs. Raises Failed, with its last log lines, once it has ended."""
        state = json.loads(docker("inspect", "--format", "{{json .State}}", name))
        expect(state["Running"], f"{name} ended with status {state['ExitCode']}: {docker('logs', '--tail', '5', name)}")
        return True

    def log(self, name: str) -> str:
        """Return a container's log."""
        return command("docker", "logs", name)[1]

    def answers(self, name: str, probe: str = "readinessProbe") -> bool:
        """Return whether the HTTP probe of a workload's first pod succeeds."""
        (container,) = self.workloads()[name]["template"]["spec"]["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        asked = container[probe]["httpGet"]
        address = f"http://127.0.0.1:{ports[asked['port']]}{asked['path']}"
        return command("docker", "exec", f"{self.project.name}-{name}-0", "python", "-c", ASK, address)[0] == 0

    def stop(self) -> dict[str, int]:
        """Stop all roles together, then Redis; return name -> exit status of those that ended with a wrong one."""
        for one in ([name for name in self.started if "-redis-" not in name], self.started):
            docker("stop", *one, timeout=400)
        ended = json.loads(docker("inspect", *self.started)) if self.started else []
        statuses = {one["Name"].removeprefix("/"): one["State"]["ExitCode"] for one in ended}
        # A role whose work is done sleeps until the stop's signal ends it.
        right = {name: SLEPT if "its work is done" in self.log(name) else 0 for name in self.started}
        docker("rm", *self.started)
        self.started.clear()
        own = f"{self.project.name}-"
        return {name.removeprefix(own): status for name, status in statuses.items() if status != right[name]}

    def _arguments(self, name: str, number: int, pod: Resource, container: Resource) -> list[str]:
        """Return the arguments of `docker run` for a container of a pod, including its command."""
        told, safe = pod["securityContext"], container["securityContext"]
        given = ["--network", f"{self.project.name}_servers", "--network-alias", name]
        given += ["--user", f"{told['runAsUser']}:{told['runAsGroup']}", "--group-add", str(told["fsGroup"])]
        given += ["--group-add", GROUP]  # the group of the Secrets' files; in a pod that is fsGroup
        expect(safe["allowPrivilegeEscalation"] is False, f"{name} may gain privileges")
        given += ["--security-opt", "no-new-privileges", *(f"--cap-drop={one}" for one in safe["capabilities"]["drop"])]
        given += ["--read-only"] if safe.get("readOnlyRootFilesystem") else []
        given += ["--init"] if pod.get("shareProcessNamespace") else []
        size = container["resources"]["limits"]["memory"]
        given += ["--memory", size[:-2] + UNITS[size[-2:]]]
        fields = {"LEARNER_ID": str(number), "POD_IP": name}
        values = {one["name"]: one.get("value", fields.get(one["name"], "")) for one in container.get("env", ())}
        given += [word for key, value in values.items() for word in ("--env", f"{key}={value}")]
        volumes = {one["name"]: one for one in pod["volumes"]}
        for mount in container["volumeMounts"]:
            given += self._mount(name, number, mount, volumes.get(mount["name"]))
            if mount["name"] not in volumes:  # fsGroup makes a claim's volume the group's
                owned = ("--volume", f"{self.project.name}_{mount['name']}-{name}-{number}:/volume:nocopy")
                group = f"chown :{told['fsGroup']} /volume && chmod 2775 /volume"
                docker("run", "--rm", "--user", "root", *owned, IMAGE, "sh", "-c", group)
        words = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], word) for word in container["command"]]
        theirs = str(container["image"])
        image = {"warren": IMAGE, "warren-serving": SERVING}.get(theirs.split(":")[0], theirs)
        return [*given, "--entrypoint", words[0], image, *words[1:]]

    def _mount(self, name: str, number: int, mount: Resource, volume: Resource | None) -> list[str]:
        path, only = mount["mountPath"], ":ro" if mount.get("readOnly") else ""
        if volume is not None and "emptyDir" in volume:
            return ["--tmpfs", f"{path}:mode=1777"]
        if volume is not None and "secret" in volume:
            return ["--volume", f"{self.secrets}/{volume['secret']['secretName']}:{path}{only}"]
        if volume is not None and "configMap" in volume:
            return ["--volume", f"{self.settings}:{path}{only}"]
        if volume is not None:
            return ["--volume", f"{self.project.name}_{volume['persistentVolumeClaim']['claimName']}:{path}{only}"]
        return ["--volume", f"{self.project.name}_{mount['name']}-{name}-{number}:{path}:nocopy"]


def build_serving(_: Project) -> str:
    """Build the image of deployments; return its size."""
    given = ["--build-arg=HOROVOD="]  # no deployment needs it, but an old builder would build it
    given += [f"--build-arg={name}={os.environ[name]}" for name in ("TORCH_INDEX",) if name in os.environ]
    target = ("--target", "serving", "--tag", SERVING)
    docker("build", "--quiet", "--file", "docker/Dockerfile", *given, *target, ".", timeout=3000)
    return f"{int(docker('image', 'inspect', '--format', '{{.Size}}', SERVING)) / 1e6:,.0f} MB"


def servers(project: Project) -> str:
    """Start RabbitMQ by Compose, which creates the passwords first."""
    project.up("rabbitmq")
    until("RabbitMQ is healthy", 240, lambda: project.runs_well("rabbitmq"))
    return "healthy"


def play(project: Project, overlay: str, least: int) -> str:
    """Start all pods of an overlay, wait until each learner has made `least` updates, and stop them."""
    pods = Pods(project, f"overlays/{overlay}")
    pods.make_users()
    names = [name for name in pods.workloads() if name != "rabbitmq"]
    for name in sorted(names, key=lambda name: (name != "redis", not name.startswith("league"), name)):
        pods.start(name, min(2, pods.workloads()[name].get("replicas", 1)))
    for name in [one for one in pods.started if "-learner" in one]:
        until(
            f"{name} learns", 400,
            lambda name=name: pods.runs(name) and int((FIGURES.findall(pods.log(name)) or [("", 0)])[-1][1]) >= least,  # type: ignore[misc]
        )  # fmt: skip
    for name in ("flower", "gateway"):
        if name in names:
            until(f"{name} is ready", 240, lambda name=name: pods.answers(name))  # type: ignore[misc]
    count = len([pods.runs(name) for name in pods.started])
    wrong = pods.stop()
    expect(not wrong, f"wrong exit statuses: {wrong}")
    return f"{count} pods ran; all ended well"


def deployment(project: Project) -> str:
    """Start the deployment on the volume of an earlier learner, and wait until its readiness probe succeeds."""
    pods = Pods(project, "deployment")
    pods.start("deploy", 2)
    until("it is ready", 240, lambda: pods.runs(pods.started[0]) and pods.answers("deploy"))
    wrong = pods.stop()
    expect(not wrong, f"wrong exit statuses: {wrong}")
    return "2 pods were ready; both ended well"


PODS.step("the image of deployments is built", 50)(build_serving)
PODS.step("RabbitMQ runs, by Compose", 5)(servers)
for overlay, least in (("small", 3), ("gateway", 0), ("served", 2), ("league", 1)):
    PODS.step(f"all pods of the overlay {overlay}", 12)(
        lambda project, overlay=overlay, least=least: play(project, overlay, least)  # type: ignore[misc]
    )
PODS.step("the pods of the deployment", 6)(deployment)
