# Weir: `make help` lists what there is. Every target sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MITM := .venv-mitm
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PACKAGES := $(wildcard protocol wire origin gateway pages spark loadtest weir)
CONFORMANCE := tests/conformance
NODE_FOLDERS := $(CONFORMANCE) tests/clients loadtest
# Only tests need these; where they cannot be installed, those tests say so.
DEBIAN := java=default-jre-headless chromium=chromium curl=curl gcc=build-essential goaccess=goaccess openssl=openssl wrk=wrk
UNPACKED := $(addprefix .bench/debian/,prometheus nginx varnish varnish-modules libvarnishapi3 libedit2 libjemalloc2)
# Tests start hundreds of processes: none should compile our modules anew.
export PYTHONDONTWRITEBYTECODE :=
# Extra arguments of the program that the target starts: make test ARGS="-k offsets"
ARGS ?=
# Names the slowest at the end; ARGS="-n 0" runs all in one process, one after another.
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --durations=15

.PHONY: help setup run test test-quick installs test-spark check conformance analytics-check demo-report bench soak verify verify-cluster mitmproxy inspect docs pictures lock clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## */  \1	/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(VENV)/.dev  ## Create .venv with the locked dependencies and the weir command

run: $(VENV)/.runtime  ## Start gateway (8080) and origin (4437) with a development key, data in ./data
	$(BIN)/weir up --data-dir ./data $(ARGS)

test: installs setup $(VENV)/.debian $(MITM)/.ready  ## Run every test, in several processes
	$(PYTEST) $(ARGS)

# What needs no more than the Python packages.
QUICK := $(addprefix tests/,protocol wire origin gateway weir config extension test_architecture.py)
test-quick: setup  ## Run the two-minute tests: no conformance, crashes, Envoy, Chromium or Spark
	$(PYTEST) -m "not slow" $(QUICK) $(ARGS)

installs:  ## List what `make test` will install
	@{ $(MAKE) -sq $(VENV)/.dev || echo "  $(VENV): the Python packages of requirements-dev.lock"; \
	$(MAKE) -sq $(MITM)/.ready || echo "  $(MITM): mitmproxy, the Python packages of loadtest/mitmproxy.lock"; \
	for pair in $(DEBIAN); do command -v $${pair%%=*} >/dev/null || \
		echo "  $${pair#*=}: a Debian package (only as root, else its tests are skipped)"; done; \
	for folder in $(UNPACKED); do [ -e $$folder ] || \
		echo "  $$folder: a Debian package, unpacked there and not installed"; done; \
	for folder in $(NODE_FOLDERS); do stamp=$$folder/node_modules/.installed-lock.json; \
		{ [ -d $$folder/node_modules ] && [ ! -e $$stamp ]; } || \
		cmp -s $$stamp $$folder/package-lock.json || \
		echo "  $$folder/node_modules: the npm packages of its package-lock.json"; done; \
	} | sed '1i The tests need what is not here yet, and will install:'

test-spark: setup $(VENV)/.debian  ## Run all Spark tests, including kills, a cluster and watching
	WEIR_SPARK=1 $(PYTEST) tests/spark $(ARGS)

check: setup  ## Check format, lint, types, architecture, Envoy's configuration and generated documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict $(PACKAGES) tests
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/weir/edge/test_bootstrap.py
	$(BIN)/python -m weir.reference --check
	$(BIN)/python -m tests.conformance.chapters --check

docs: setup  ## Regenerate the reference and the list of suite chapters
	$(BIN)/python -m weir.reference
	$(BIN)/python -m tests.conformance.chapters

pictures: setup  ## Draw the console as docs/images/console.png (needs Chromium)
	$(BIN)/python -m tests.console.picture $(ARGS)

conformance: setup  ## Run the official conformance suite in each storage mode and through the gateway
	WEIR_EACH_NODE=1 $(BIN)/python -m pytest -v $(CONFORMANCE) $(ARGS)

analytics-check: setup $(VENV)/.debian  ## Compare tables of a million log lines with DuckDB; kill a run at each step (long)
	WEIR_SPARK=1 WEIR_LOG_LINES=1000000 WEIR_REPORT_KILLS=20 WEIR_STATE_HISTORIES=60 WEIR_WHOLE_REPORT=1 \
		$(BIN)/python -m pytest -v tests/spark/test_run.py tests/spark/test_kill.py \
		tests/spark/test_cluster.py tests/spark/test_state.py \
		tests/compose/test_native_spark.py $(ARGS)

demo-report: setup $(VENV)/.debian  ## Report on a minute of traffic through a real gateway (needs Java 17)
	$(BIN)/python -m loadtest.demo $(ARGS)

bench: setup  ## Compare origin, gateway and Spark with their peers on this machine (about an hour)
	$(BIN)/python -m loadtest.bench $(ARGS)

soak: setup  ## Check for leaks under half an hour of load with 2,000 live readers
	$(BIN)/python -m loadtest.soak $(ARGS)

verify-cluster: setup  ## Check a cluster under 30 rounds of each fault, and that planted bugs are found (hours)
	$(BIN)/weir verify --cluster --rounds 30 $(ARGS)
	WEIR_CLUSTER_MUTANTS=1 $(BIN)/python -m pytest -v tests/verify/test_cluster_mutants.py

verify: setup $(MITM)/.ready  ## Check a fleet's guarantees under 5 minutes of faults (ARGS="--seed 2")
	$(BIN)/weir verify $(ARGS)

inspect: $(VENV)/.runtime $(MITM)/.ready  ## Inspect requests on both sides of a gateway, in the browser
	$(BIN)/python -m loadtest.inspector $(ARGS)

mitmproxy: $(MITM)/.ready  ## Install mitmproxy, which injects faults, in its own environment

# Versions stay as they are where they still fit; make lock ARGS=--upgrade takes the newest.
# The last line drops the addresses that npm notes down in spite of .npmrc.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url $(ARGS)
lock: setup  ## Regenerate the lock files from pyproject.toml and package.json (needs npm)
	$(PIP) uv
	$(COMPILE) pyproject.toml --group build --output-file requirements.lock
	$(COMPILE) pyproject.toml --group build --group dev --extra spark \
		--extra cluster --extra cluster-dev \
		--constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE) pyproject.toml --group build --extra spark --constraint requirements-dev.lock \
		--output-file requirements-spark.lock
	$(COMPILE) loadtest/mitmproxy.in --output-file loadtest/mitmproxy.lock
	for folder in $(NODE_FOLDERS); do \
		(cd $$folder && npm install --package-lock-only --ignore-scripts) || exit 1; done
	$(BIN)/python $(CONFORMANCE)/strip_lock.py $(addsuffix /package-lock.json,$(NODE_FOLDERS))

clean:  ## Remove everything that other targets created, except ./data
	rm -rf $(VENV) $(MITM) $(addsuffix /node_modules,$(NODE_FOLDERS)) .bench build *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make setup quick when no lock file changed.
$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(PIP) -r requirements-dev.lock
	@touch $@

$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/pip
	$(PIP) -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# Apart from ours: it pins old versions of what we use.
$(MITM)/.ready: loadtest/mitmproxy.lock | $(BIN)/pip
	$(PYTHON) -m venv --clear $(MITM)
	$(MITM)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(VENV)/.debian: Makefile | $(VENV)/.runtime
	@$(BIN)/python -m loadtest.peers.debian $(DEBIAN) && touch $@ || true

# Debian keeps half of the venv module in a package of its own.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Weir needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } || \
		{ echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
