"""`make gfootball`: builds Google Research Football for this Python, once, and installs it.

Its last release, 2.10.2, has no wheels and needs an old setuptools, SDL2 and Boost. The wheel is kept per version of
Python in the cache folder (WARREN_CACHE, or ~/.cache/warren).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from warren import wheels
from warren.errors import ConfigurationError, WarrenError

VERSION = "2.10.2"
NEWEST_PYTHON = (3, 11)  # newest Python that runs the old setuptools it needs
PACKAGES = (  # Debian's packages, each with a file that shows whether it is installed
    ("g++", "c++"),
    ("cmake", "cmake"),
    ("make", "make"),
    ("libgl1-mesa-dev", "GL/gl.h"),
    ("libsdl2-dev", "SDL2/SDL.h"),
    ("libsdl2-image-dev", "SDL2/SDL_image.h"),
    ("libsdl2-ttf-dev", "SDL2/SDL_ttf.h"),
    ("libsdl2-gfx-dev", "SDL2/SDL2_gfxPrimitives.h"),
    ("libboost-all-dev", "boost/python.hpp"),
)
INCLUDES = (Path("/usr/include"), Path("/usr/local/include"))
BUILT_WITH = ("setuptools<66", "wheel<0.39", "psutil", "numpy", "six")
NEEDED = ("opencv-python-headless>=4.10", "pygame-ce>=2.1.3", "scipy", "absl-py", "psutil", "six", "gym")


def main() -> int:
    """Build the wheel or take it from the cache, and install it; return the exit status."""
    try:
        if not works():
            wheels.install(wheels.cached(folder()) or build(), NEEDED)
            if not works():
                raise WarrenError(
                    "gfootball is installed, and cannot be imported: "
                    "python -c 'import envs.one_agent.gym_envs, gfootball.env' says why"
                )
        print(f"gfootball {VERSION} is there: env.id=football:academy_empty_goal_close")
        return 0
    except WarrenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status


def works() -> bool:
    """Return True if football can be imported by this Python."""
    check = "import envs.one_agent.gym_envs, gfootball_engine, gfootball.env.football_env"
    return subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0


def folder() -> Path:
    """Return the folder that keeps the wheel for this Python."""
    return wheels.cache_folder() / "gfootball" / f"{VERSION}-{sys.implementation.cache_tag}-{platform.machine()}"


def missing() -> list[str]:
    """Return Debian's packages that a build needs and this machine lacks."""
    return [
        package
        for package, sign in PACKAGES
        if not shutil.which(sign) and not any((place / sign).exists() for place in INCLUDES)
    ]


def build() -> Path:
    """Build the wheel, which takes ten minutes of two cores; return it. Raises ConfigurationError and WarrenError."""
    if sys.version_info[:2] > NEWEST_PYTHON:
        raise ConfigurationError(
            f"gfootball {VERSION} cannot be built by Python {platform.python_version()}, which does not run the "
            f"{BUILT_WITH[0]} that it needs; build .venv by Python 3.11: make setup PYTHON3=python3.11"
        )
    if lacking := missing():
        _apt_get(lacking)
    with tempfile.TemporaryDirectory(prefix="warren-gfootball-") as place:
        # Built in a virtual environment: the engine's script calls `python3`, which has to have these packages.
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        python = str(Path(place) / "bin" / "python")
        if subprocess.run([python, "-m", "pip", "install", "--quiet", *BUILT_WITH], check=False).returncode != 0:
            raise WarrenError(f"pip could not install what gfootball is built with: {', '.join(BUILT_WITH)}")
        return wheels.build(f"gfootball {VERSION}", f"gfootball=={VERSION}", folder(), {}, about=600, python=python)


def _apt_get(packages: list[str]) -> None:
    """Install the packages if this user may, as `make setup` does; else say which to install."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ConfigurationError(
            f"gfootball cannot be built without {', '.join(packages)}; on Debian or Ubuntu: "
            f"sudo apt-get install {' '.join(packages)}"
        )
    print(f"installing {' '.join(packages)}", flush=True)
    install = "apt-get -qq update && apt-get -qq install -y --no-install-recommends " + " ".join(packages)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(["sh", "-c", f"{install} >/dev/null"], env=environment, check=False).returncode != 0:
        raise WarrenError(f"apt-get could not install {' '.join(packages)}")


if __name__ == "__main__":
    sys.exit(main())
