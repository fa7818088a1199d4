#!/bin/sh
# Sets Warren up and runs all tests that need no servers on Python 3.13: this machine's, or Debian 13's in a container.
#   docker/python3.13.sh [PYTEST'S ARGUMENTS]
# TARGET names another target of make: try-wheel.
# The packages stay, in .venv-python3.13 or in the volume warren-python3.13: 6 GB where TORCH_INDEX names no CPU build of
# torch, since PyPI's is for CUDA. PYTHON_IMAGE names another image of Debian 13; WORKERS how many processes share the tests.
set -eu
cd "$(dirname "$0")/.."
target=${TARGET:-test-without-servers}
if python3.13 -c 'import ensurepip, venv' >/dev/null 2>&1; then
  exec make --no-print-directory VENV=.venv-python3.13 PYTHON3=python3.13 "$target" ARGS="$*"
fi
if ! command -v docker >/dev/null; then
  echo "error: neither python3.13 with its venv module nor docker is on PATH; install one of them" >&2
  exit 2
fi

set -- --env ARGS="$*" --env TARGET="$target"
for name in WORKERS TORCH_INDEX PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT; do
  if [ -n "$(printenv $name)" ]; then set -- "$@" --env "$name"; fi
done
# An index of packages that this machine trusts may have a certificate of its own.
authorities=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
if [ -f "$authorities" ]; then
  set -- "$@" --volume "$authorities:/authorities.crt:ro" --env PIP_CERT=/authorities.crt
fi
exec docker run --rm --init --volume "$PWD:/source:ro" --volume warren-python3.13:/cache "$@" \
  "${PYTHON_IMAGE:-debian:trixie-slim}" sh -euc '
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends python3 python3-venv make procps >/dev/null
    python3 --version
    mkdir /warren
    cd /source
    tar -c --exclude "./.venv*" --exclude ./.git --exclude ./runs --exclude ./conf/local . | tar -x -C /warren
    cd /warren
    make --no-print-directory VENV=/cache/venv PYTHON3=python3 ${WORKERS:+WORKERS=$WORKERS} "$TARGET" ARGS="$ARGS"
  '
