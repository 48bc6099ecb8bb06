# Weir: `make help` lists what there is. Every target sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PACKAGES := $(wildcard protocol wire origin gateway spark loadtest weir)
CONFORMANCE := tests/conformance
NODE_FOLDERS := $(CONFORMANCE) tests/clients loadtest
# Extra arguments of the program that the target starts: make test ARGS="-k offsets"
ARGS ?=

.PHONY: help setup run test test-spark check conformance analytics-check demo-report bench lock clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## */  \1	/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(VENV)/.dev  ## Create .venv with the locked dependencies and the weir command

run: $(VENV)/.runtime  ## Start gateway (8080) and origin (4437) with a development key, data in ./data
	$(BIN)/weir up --data-dir ./data $(ARGS)

test: setup  ## Run every test, the conformance suite in each storage mode included
	$(BIN)/python -m pytest $(ARGS)

test-spark: setup  ## Run the tests that start Spark (needs Java 17; about 5 minutes)
	WEIR_SPARK=1 $(BIN)/python -m pytest -m "not slow" tests/spark $(ARGS)

check: setup  ## Format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict $(PACKAGES) tests
	$(BIN)/python -m pytest -q tests/test_architecture.py

conformance: setup  ## Run the official conformance suite in each storage mode and through the gateway
	$(BIN)/python -m pytest -v $(CONFORMANCE) $(ARGS)

analytics-check: setup  ## Compare the tables of a million log lines with DuckDB; kill ten runs (long)
	WEIR_SPARK=1 WEIR_LOG_LINES=1000000 WEIR_REPORT_KILLS=10 \
		$(BIN)/python -m pytest -v tests/spark/test_run.py tests/spark/test_kill.py \
		tests/spark/test_cluster.py $(ARGS)

demo-report: setup  ## A minute of traffic through a real gateway, and the report of it (needs Java 17)
	$(BIN)/python -m loadtest.demo $(ARGS)

bench: setup  ## Compare origin and gateway with others like them on this machine (about 15 minutes)
	$(BIN)/python -m loadtest.bench $(ARGS)

# Versions stay as they are where they still fit; make lock ARGS=--upgrade takes the newest.
# The last line drops the addresses that npm notes down in spite of .npmrc.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url pyproject.toml $(ARGS)
lock: setup  ## Write the lock files anew from pyproject.toml and package.json (needs npm)
	$(PIP) uv
	$(COMPILE) --group build --output-file requirements.lock
	$(COMPILE) --group build --group dev --extra spark --constraint requirements.lock \
		--output-file requirements-dev.lock
	for folder in $(NODE_FOLDERS); do \
		(cd $$folder && npm install --package-lock-only --ignore-scripts) || exit 1; done
	$(BIN)/python $(CONFORMANCE)/strip_lock.py $(addsuffix /package-lock.json,$(NODE_FOLDERS))

clean:  ## Remove what the other targets made, except ./data
	rm -rf $(VENV) $(addsuffix /node_modules,$(NODE_FOLDERS)) .bench build *.egg-info
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

# Debian keeps half of the venv module in a package of its own.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Weir needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } || \
		{ echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
