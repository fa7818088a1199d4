"""A reader of kustomizations, for the fields that docker/kubernetes uses; any other field is an error.

A test compares this reader with `kubectl kustomize` if kubectl is installed.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]
WORKLOADS = ("Deployment", "StatefulSet")
FIELDS = {
    "apiVersion", "kind", "namespace", "resources", "components", "configMapGenerator", "images", "patches",
    "nameSuffix", "labels",
}  # fmt: skip


def build(folder: Path) -> list[Resource]:
    """Return the resources of a kustomization. A generated ConfigMap keeps its name; Kustomize adds a hash to it."""
    return _applied(folder, yaml.safe_load((folder / "kustomization.yaml").read_text()), [])


def by_kubectl(folder: Path) -> list[Resource] | None:
    """Return the resources that `kubectl kustomize` builds; None if it is not installed."""
    program = shutil.which("kubectl")
    if program is None:
        return None
    done = subprocess.run([program, "kustomize", folder], check=True, capture_output=True, text=True, timeout=60)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def _applied(folder: Path, said: Resource, found: list[Resource]) -> list[Resource]:
    assert set(said) <= FIELDS, f"{folder}: {set(said) - FIELDS} is not read here"
    found = found + [one for path in said.get("resources", ()) for one in _read(folder / path)]
    for path in said.get("components", ()):
        component = yaml.safe_load((folder / path / "kustomization.yaml").read_text())
        assert component["kind"] == "Component"
        found = _applied(folder / path, component, found)
    for generated in said.get("configMapGenerator", ()):
        assert set(generated) == {"name", "files"}
        named = (file.split("=") for file in generated["files"])
        data = {key: (folder / path).read_text() for key, path in named}
        metadata = {"name": generated["name"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    for patch in said.get("patches", ()):
        targets = [one for one in found if _matches(one, patch["target"])]
        assert targets, f"{folder}: no {patch['target']} to patch"
        for target in targets:
            for operation in yaml.safe_load(patch["patch"]):
                _patch(target, **operation)
    for one in found:
        _transform(one, said)
    return found


def _read(path: Path) -> list[Resource]:
    return build(path) if path.is_dir() else [one for one in yaml.safe_load_all(path.read_text()) if one]


def _matches(one: Resource, target: dict[str, str]) -> bool:
    return bool(one["kind"] == target["kind"] and one["metadata"]["name"] == target["name"])


def _patch(target: Resource, op: str, path: str, value: Any = None) -> None:
    *parents, last = (part.replace("~1", "/") for part in path.removeprefix("/").split("/"))
    place: Any = target
    for part in parents:
        place = place[int(part) if isinstance(place, list) else part]
    if op == "add" and last == "-":
        place.append(value)
    elif op == "remove":
        del place[last]
    else:
        assert op == "add" or last in place, f"{path} of {target['metadata']['name']} is not there to be replaced"
        place[last] = copy.deepcopy(value)


def _transform(one: Resource, said: Resource) -> None:
    if "namespace" in said and one["kind"] != "Namespace":
        one["metadata"]["namespace"] = said["namespace"]
    one["metadata"]["name"] += said.get("nameSuffix", "")
    for labels in said.get("labels", ()):
        assert set(labels) == {"pairs", "includeSelectors"} and one["kind"] in WORKLOADS
        template = one["spec"]["template"]["metadata"]
        for place in (one["metadata"]["labels"], one["spec"]["selector"]["matchLabels"], template["labels"]):
            place.update(labels["pairs"])
        for claim in one["spec"].get("volumeClaimTemplates", ()):
            claim["metadata"].setdefault("labels", {}).update(labels["pairs"])
    for image in said.get("images", ()) if one["kind"] in WORKLOADS else ():
        spec = one["spec"]["template"]["spec"]
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
