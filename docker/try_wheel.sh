#!/bin/sh
# Builds the wheel and uses it as a stranger would: from a new environment, in a folder with packages of its own that are
# called envs and tasks, it trains CartPole to its goal, then a league of Kuhn poker for half a minute.
#   docker/try_wheel.sh PYTHON
# PYTHON's environment has what Warren needs, and lends it: nothing is downloaded twice.
set -eu
python=$1
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM

mkdir -p "$place/sources" "$place/folder/envs" "$place/folder/tasks"
tar -c --exclude conf/local --exclude __pycache__ pyproject.toml README.md \
  agents conf envs league tasks warren workers | tar -x -C "$place/sources"
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$place" "$place/sources"
"$python" -m venv --without-pip "$place/venv"
site='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -c "$site" >"$("$place/venv/bin/python" -c "$site")/lent.pth"
"$python" -m pip --python "$place/venv/bin/python" install --quiet --no-deps --no-index --force-reinstall "$place"/*.whl
for package in envs tasks; do
  echo "raise RuntimeError('$package of the folder was imported')" >"$place/folder/$package/__init__.py"
done

cd "$place/folder"
"$place/venv/bin/python" --version
"$place/venv/bin/warren" --version
"$place/venv/bin/warren" train env=cartpole | tee "$place/said"
grep -q solved "$place/said"
"$place/venv/bin/warren" league seconds=30
