"""A command whose packages are not installed says so in one sentence, with the command that installs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.deployed import ACTOR, run_folder
from support.python_forks import forks


def run_without(package: str, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE ARGUMENT...` as on a machine that lacks `package`."""
    return forks().run(module, arguments, os.environ, lacking=package)


@pytest.mark.parametrize(
    ("package", "extra", "module", "arguments"),
    [
        ("uvicorn", "gateway", "workers.deploy", ["run={run}"]),
        ("onnxruntime", "onnx", "workers.deploy", ["run={run}", "backend=onnx"]),
        ("onnxruntime", "onnx", "workers.export", ["run={run}", "--to", "{run}/model.onnx"]),
        ("uvicorn", "gateway", "workers.gateway", ["run=r", f"env.id=gamecore:{ACTOR}", "sampling=streaming"]),
        ("uvicorn", "gateway", "workers.gateway.fakes.actor", ["--port", "0"]),
        ("uvicorn", "gateway", "workers.gateway.fakes.model", [ACTOR, "--port", "0"]),
    ],
)
def test_a_missing_package_is_one_sentence(
    tmp_path: Path, package: str, extra: str, module: str, arguments: list[str]
) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, env="CartPole-v1")
    found = run_without(package, module, *(one.format(run=tmp_path) for one in arguments))
    said = [line for line in found.stderr.splitlines() if line.strip()]
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr and len(said) == 1, found.stderr
    assert package in said[0] and "not installed" in said[0] and f"pip install -e '.[{extra}]'" in said[0]
