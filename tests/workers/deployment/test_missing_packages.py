"""A command whose packages are not installed says so in one sentence, with the command that installs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.deployed import ACTOR, ROOT, run_folder

WITHOUT = "import runpy, sys; sys.modules[sys.argv.pop(1)] = None; runpy.run_module(sys.argv[1], run_name='__main__')"


def run_without(package: str, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENT...` on a machine that lacks `package`."""
    program = WITHOUT.replace("runpy.run_module(sys.argv[1]", "runpy.run_module(sys.argv.pop(1)")
    command = [sys.executable, "-c", program, package, module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


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
