#!/bin/sh
# Runs tests on an ARM processor that QEMU emulates, with the C code compiled for it: slow, so for few tests at a time.
#   docker/arm64.sh [PYTEST'S ARGUMENTS]     by default the tests of numbers; on a machine with ARM, pytest alone
# For Debian on x86-64, as root the first time. Debian's Python for ARM and the wheels stay in ~/.cache/warren/arm64.
# Packages without compiled parts are those of .venv; tests that start Warren's processes are not for it.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
if [ $# = 0 ]; then
  set -- tests/agents/native tests/agents/operators tests/agents/replay tests/envs/test_classic_control.py \
    tests/envs/test_compiled_tree.py tests/league/rules tests/league/empirical_game tests/tasks/codec
fi
if [ "$(uname -m)" = aarch64 ]; then exec "$python" -m pytest "$@"; fi

cache=${WARREN_CACHE:-$HOME/.cache/warren}/arm64
root=$cache/root site=$cache/site version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if ! command -v qemu-aarch64-static >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross >/dev/null
fi

if [ ! -x "$root/usr/bin/python$version" ]; then
  echo "downloading Debian's Python $version for ARM"
  mkdir -p "$root" "$cache/debs" "$cache/lists/partial"
  apt="apt-get -qq -o APT::Architectures=amd64,arm64 -o Dir::State::lists=$cache/lists -o APT::Sandbox::User=root"
  $apt update
  (cd "$cache/debs" && $apt download "python$version:arm64" "python$version-minimal:arm64" \
    "libpython$version-minimal:arm64" "libpython$version-stdlib:arm64" \
    $(for name in libc6 libgcc-s1 libstdc++6 libgomp1 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 \
      libsqlite3-0 libncursesw6 libtinfo6 libuuid1 libcrypt1; do echo "$name:arm64"; done))
  for package in "$cache"/debs/*.deb; do dpkg -x "$package" "$root"; done
fi

if [ ! -f "$site/whole" ]; then
  "$python" - <<'LIST' >"$cache/compiled.txt"
from importlib.metadata import distributions
for one in distributions():
    if any(file.suffix == ".so" for file in one.files or ()) and one.name.lower() != "torch":
        print(f"{one.name}=={one.version.partition('+')[0]}")
LIST
  # Later wheels of torch for ARM need CUDA's libraries; redis needs async-timeout on Debian's Python.
  for package in torch==2.8.0 async-timeout $(cat "$cache/compiled.txt"); do
    "$python" -m pip install --quiet --no-deps --upgrade --target "$site" --only-binary=:all: --python-version "$version" \
      --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_26_aarch64 \
      --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 "$package" ||
      echo "$package has no wheel for ARM: its tests fail or are skipped"
  done
  : >"$site/whole"
fi

packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export PYTHONPATH="$site:$PWD:$packages" CC=aarch64-linux-gnu-gcc WARREN_CACHE="$cache" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
exec qemu-aarch64-static -L "$root" "$root/usr/bin/python$version" -m pytest -n 0 -p no:cacheprovider --timeout 900 "$@"
