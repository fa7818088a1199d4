# Every target does all the set-up it needs by itself, once: a second run starts at once.
#   make train ARGS="experiment=... seed=3"     ARGS are Hydra overrides
#   make test ARGS="-k matchmaking"             ARGS are pytest's
# Variables: PYTHON3 names the interpreter to build .venv from; TORCH_INDEX a package index with another build of torch,
# e.g. TORCH_INDEX=https://download.pytorch.org/whl/cpu for the CPU build where the default is the CUDA one; WORKERS the
# number of processes that share the tests (four leave two cores no idle time; 0: one, which a debugger needs); QUEUES
# the default queue type in test-rabbitmq4; IMAGE_ARGS docker build's, as in IMAGE_ARGS="--build-arg HOROVOD=".

VENV := .venv
PYTHON := $(VENV)/bin/python
PYTHON3 ?=
TORCH_INDEX ?=
QUEUES ?=
WORKERS ?= 4
ARGS ?=
IMAGE_ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without this, each of a run's processes would compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup horovod gfootball train league dashboard football test test-without-servers test-races dashboard-test test-rabbitmq4 test-python3.13 test-arm64 compose-test images try-wheel try-wheel-python3.13 check compiled lint format site servers compose clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready-run ## build .venv with everything that training needs

horovod: $(VENV)/.ready-run ## build Horovod for allreduce=horovod: five minutes, once for each Python and torch
	@$(PYTHON) -m workers.learning.allreduce.build_horovod $(ARGS)

train: $(VENV)/.ready-run ## train; ARGS="..." are Hydra overrides
	@$(PYTHON) -m workers.train $(ARGS)

gfootball: $(VENV)/.ready-run ## build Google Research Football: ten minutes, once for each Python
	@$(PYTHON) -m envs.build_football

football: gfootball ## train football's empty goal to nine goals in ten episodes, and film what was learned
	@$(PYTHON) -m workers.train experiment=football $(ARGS)
	@$(PYTHON) -m workers.play runs/football --games 5 --video runs/football.mp4

league: $(VENV)/.ready-games ## train a league: Kuhn poker to exploitability 0.005; ARGS="league=mine league.env=FILE.py:GAME"
	@$(PYTHON) -m workers.train $(if $(filter experiment=% league=% resume=%,$(ARGS)),,experiment=kuhn) $(ARGS)

dashboard: $(VENV)/.ready-dashboard ## show runs and leagues in a browser, and play against players; ARGS=FOLDER for one
	@$(PYTHON) -m workers.dashboard $(ARGS)

# The processes that share the tests use all cores, and a waiting OpenMP thread keeps its core busy.
test test-without-servers test-races: export OMP_NUM_THREADS := 1

test: $(VENV)/.ready-dev servers ## run the tests and tell what the optional ones need; on Debian as root, install RabbitMQ and Redis first
	@$(PYTHON) -m pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

test-without-servers: $(VENV)/.ready-dev ## those tests that need neither RabbitMQ nor Redis
	@$(PYTHON) -m pytest -m "not servers" --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

test-races: export PYTHONPATH := $(CURDIR)/tests/support/races
test-races: $(VENV)/.ready-dev servers ## the tests with threads that are switched every microsecond, so that races show
	@$(PYTHON) -m pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

dashboard-test: $(VENV)/.ready-dev ## the dashboard's pages in the distribution's Chromium
	@$(call quietly,Playwright,--editable '.[dashboard$(comma)browser]')
	@$(PYTHON) -m pytest tests/workers/dashboard $(ARGS)

test-python3.13: ## the tests without servers on Python 3.13: this machine's, or Debian 13's in a container
	@docker/python3.13.sh $(ARGS)

try-wheel: $(VENV)/.ready-games servers ## use the wheel as a stranger would: a new environment, CartPole, a league
	@docker/try_wheel.sh $(PYTHON)

try-wheel-python3.13: ## try-wheel on Python 3.13
	@TARGET=try-wheel docker/python3.13.sh

test-arm64: $(VENV)/.ready-dev ## tests of numbers on an ARM processor that QEMU emulates: C, gradients, codec
	@PYTHON=$(PYTHON) docker/arm64.sh $(ARGS)

test-rabbitmq4: $(VENV)/.ready-dev ## all tests that use servers, on RabbitMQ 4 and Redis 8 in containers; QUEUES=quorum
	@QUEUES=$(QUEUES) docker/test.sh $(PYTHON) -m pytest -m servers $(ARGS)

compose: ## the whole job in containers: docker compose up; EXPERIMENT=kuhn for a league
	docker compose up $(ARGS)

compose-test: ## prove docker-compose.yml on a real engine: half an hour; ARGS="kuhn faults" for some, ARGS=--list tells what
	@$(or $(PYTHON3),python3) tests/compose $(ARGS)

images: ## build the image of all roles and the one that serves trained policies
	docker build --file docker/Dockerfile --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) $(IMAGE_ARGS) --tag warren:local .
	docker build --file docker/Dockerfile --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) $(IMAGE_ARGS) --target serving --tag warren-serving:local .

check: compiled lint test ## everything that CI runs: linters, types, layers, tests

compiled: $(VENV)/.ready-dev # compile what tests import while the linters leave a core idle; else each process does
	@$(PYTHON) -m pytest --collect-only --quiet >/dev/null 2>&1 &

site: $(VENV)/.ready-run ## build/site: the pages of docs/ as a site with a reference and a search; a dead link fails
	@$(call quietly,MkDocs,--editable '.[docs]')
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict $(ARGS)
	@echo "build/site/index.html"

lint: $(VENV)/.ready-dev ## linters, format, types and the layers of the packages
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/.ready-dev ## put all code into the one format
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

servers: $(VENV)/.ready-run # the binaries only; each run and each test session starts its own
	@$(PYTHON) -m workers.servers install

clean: ## remove caches and build results; .venv and runs/ stay
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# A stamp is touched only after its whole recipe, so an interrupted installation is taken up again. Torch goes first and
# alone: what depends on it then finds a build that was chosen on purpose and fetches no other.
# Each step prints one line; the rest goes to a log, whose end is shown when the step fails. A module is compiled when
# it is first imported (--no-compile): most of torch's never are.
$(VENV)/.ready-run: pyproject.toml constraints.txt
	@$(make-venv)
	@$(call quietly,torch,$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch)
	@$(call quietly,what training needs,--editable .)
	@touch $@

$(VENV)/.ready-games: $(VENV)/.ready-run
	@$(call quietly,games,--editable '.[games]')
	@touch $@

$(VENV)/.ready-dashboard: $(VENV)/.ready-run
	@$(call quietly,the dashboard,--editable '.[dashboard]')
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-run
	@$(call quietly,what tests need,--editable '.[dev$(comma)games$(comma)atari$(comma)gateway$(comma)dashboard$(comma)onnx]')
	@touch $@

SETUP_LOG := $(VENV)/setup.log
comma := ,
define quietly
echo "installing $(1) (details in $(SETUP_LOG))"; \
if ! $(PYTHON) -m pip install --no-compile --progress-bar off --constraint constraints.txt $(2) >$(SETUP_LOG) 2>&1; then \
  tail -n 20 $(SETUP_LOG) >&2; echo "error: installing $(1) failed; all of it is in $(SETUP_LOG)" >&2; exit 1; \
fi
endef

# A .venv that cannot run pip (interrupted, or its interpreter is gone) is built anew; one that can is left alone.
define make-venv
set -e; \
old='import sys; sys.exit(sys.version_info < (3, 11))'; \
if $(PYTHON) -c "$$old" >/dev/null 2>&1 && $(PYTHON) -m pip --version >/dev/null 2>&1; then exit 0; fi; \
found=; \
for candidate in $(or $(PYTHON3),python3 python3.14 python3.13 python3.12 python3.11); do \
  if "$$candidate" -c "$$old" >/dev/null 2>&1; then found=$$candidate; break; fi; \
done; \
if [ -z "$$found" ]; then \
  echo "error: no Python 3.11 or newer among: $(or $(PYTHON3),python3 python3.14 python3.13 python3.12 python3.11)" >&2; \
  echo "       install one (Debian 12, Ubuntu 24.04 or newer: apt-get install python3 python3-venv)," >&2; \
  echo "       or name it: make setup PYTHON3=/path/to/python3.12" >&2; exit 1; \
fi; \
if ! "$$found" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
  package=$$("$$found" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    echo "installing $$package"; export DEBIAN_FRONTEND=noninteractive; \
    apt-get -qq update && apt-get -qq install -y --no-install-recommends "$$package" >/dev/null; \
  else \
    echo "error: $$found lacks the venv module; on Debian or Ubuntu: sudo apt-get install $$package" >&2; exit 1; \
  fi; \
fi; \
echo "building $(VENV) from $$found"; \
"$$found" -m venv --clear $(VENV)
endef
