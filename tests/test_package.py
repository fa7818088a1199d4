"""Tests of the wheel in a new environment, used from a folder whose packages have the names of Warren's."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from warren.user_code import OURS

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
THEIRS = 'raise RuntimeError("this is a package of the user\'s")\n'
GAME = """
import gymnasium

class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), "float32")
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {}
"""
SERVICE = """
import helper
from warren import Worker, service

class Adder(Worker):
    @service(response=True)
    def add(self, a, b):
        return helper.plus(a, b)
"""
SCRIPT = """
import envs, league
from warren import Solver

def play():
    print("sum", Solver().call("adder.add", 3, 4), envs.make.__module__, league.__doc__)
"""
RUN = """
services:
  - {name: Adder, path: "adder:Adder"}
envs:
  - {name: one, path: "tasks/mine.py:play"}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from a copy: leftovers of an earlier build in the checkout would be packed too."""
    copy, place = tmp_path_factory.mktemp("sources") / "warren", tmp_path_factory.mktemp("wheel")
    copy.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    for name in (*OURS, "tests", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "local"))
    (copy / "conf" / "local").mkdir()
    (copy / "conf" / "local" / "default.yaml").write_text("# @package _global_\nactors: 7\n")
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", place, copy]
    subprocess.run(line, check=True)
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an environment with the wheel; its dependencies are this environment's."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    here = [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "shared.pth").write_text("\n".join(dict.fromkeys(here)) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--force-reinstall", wheel], check=True)
    return place / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a user's folder, whose packages end any process that imports them."""
    for name in OURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(THEIRS)
    (tmp_path / "conf" / "experiment").mkdir()
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("# @package _global_\nactors: 1\ntotal_steps: 2000\n")
    (tmp_path / "game.py").write_text(GAME)
    return tmp_path


def warren(bin_folder: Path, folder: Path, *words: str) -> tuple[int, str]:
    """Return the status and the output of `warren WORD ...`."""
    return printed(folder, bin_folder / "warren", *words)


def printed(folder: Path, *command: Path | str) -> tuple[int, str]:
    """Return the status and the output of a command."""
    done = subprocess.run(
        command, cwd=folder, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_the_wheel_holds_settings_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {*OURS}
    files = {f"conf/{path.relative_to(ROOT / 'conf')}" for path in (ROOT / "conf").rglob("*.yaml")}
    files = {name for name in files if not name.startswith("conf/local/")}
    assert {name for name in names if name.endswith(".yaml")} == files
    assert "league/redis/lua/issue.lua" in names and "warren/__init__.pyi" in names
    for package in ("agents", "envs"):  # the sources of libraries and their headers
        compiled = {path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.[ch]")}
        assert compiled and compiled <= {*names}


@pytest.mark.servers
@pytest.mark.parametrize("fork", ["true", "false"])
def test_an_installed_warren_trains_beside_packages_of_the_same_names(
    bin_folder: Path, folder: Path, fork: str
) -> None:
    status, said = warren(bin_folder, folder, "train", "experiment=mine", f"fork={fork}", "env.id=game:Game")
    assert status == 0, said
    assert "2 of 2 alive" in said and "finished" in said, said


@pytest.mark.servers
def test_services_of_a_users_modules_run_beside_packages_of_the_same_names(bin_folder: Path, folder: Path) -> None:
    (folder / "helper.py").write_text("def plus(a, b):\n    return a + b\n")
    (folder / "adder.py").write_text(SERVICE)
    (folder / "tasks" / "mine.py").write_text(SCRIPT)
    (folder / "run.yaml").write_text(RUN)
    status, said = warren(bin_folder, folder, "run", "run.yaml", "broker=private")
    assert status == 0, said
    assert "sum 7 envs.registry" in "".join(path.read_text() for path in folder.glob("runs/*/*/logs/one-0.log"))


def test_a_module_in_a_package_named_as_ours_is_refused(bin_folder: Path, folder: Path) -> None:
    status, said = warren(bin_folder, folder, "train", "env.id=envs.mine:Game")
    assert status == 2
    assert "no module 'envs.mine' ('envs' is a package of Warren's)" in said and "path/to/file.py:Name" in said


def test_an_installed_warren_tells_the_settings_of_a_league(bin_folder: Path, folder: Path) -> None:
    status, said = warren(bin_folder, folder, "league", "--help")
    assert status == 0, said
    assert "league.goal=0.005" in said and "mine" in said


def test_python_p_finds_modules_of_warren_behind_packages_of_the_same_names(bin_folder: Path, folder: Path) -> None:
    python = bin_folder / "python"
    status, said = printed(folder, python, "-P", "-m", "workers.train", "experiment=mine", "--help")
    assert status == 0, said
    status, said = printed(folder, python, "-m", "workers.train", "--help")  # Python's own rule, as the pages say
    assert (status, "a package of the user's" in said) == (1, True), said
