# One command per job. `make help` lists them; CI runs `make check` and nothing else.
#
# Variables: PYTHON=python3.12  the interpreter to make the environment with
#            VENV=/elsewhere    where the environment lives
#            PYTEST_ARGS=...    what is handed to pytest

PYTHON ?= python3
VENV ?= .venv
# Whole files per worker, so that what a file prepares (a wheel, a broker) is prepared once.
PYTEST_ARGS ?= -n 2 --dist loadfile

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory

PY := $(VENV)/bin/python
RANKWATCH := $(VENV)/bin/rankwatch
# `--no-compile` for those who came for the demo: a third of the wait, since only what is imported is ever compiled. Not for
# development: compiling inside pytest would turn other people's syntax warnings into our errors.
# An environment is as old as what it was made from: a stamp is remade when a lock or pyproject.toml is newer.
RUNTIME := $(VENV)/.stamp-runtime
DEV := $(VENV)/.stamp-dev
INSTALL := PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --disable-pip-version-check --root-user-action ignore

.PHONY: help demo test check lint format bundle docs evaluate bench wheel lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(RUNTIME) ## find the sick rank in recorded jobs: start here
	@$(RANKWATCH) demo

test: $(DEV) ## run every test
	@$(PY) -m pytest $(PYTEST_ARGS)

check: ## everything CI checks: lint, then every test
	@$(MAKE) lint
	@$(MAKE) test

lint: $(DEV) ## format check, lint, types and import contracts
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(DEV) ## write the format that `make lint` checks
	$(VENV)/bin/ruff check --fix --quiet .
	$(VENV)/bin/ruff format .

bundle: $(RUNTIME) ## retrain the shipped model bundle on the recorded runs
	$(RANKWATCH) train --runs datasets/runs --leave-out slow_data_r1 --out detector/bundle --replace

docs: $(DEV) ## write the pages and parts of pages that are made from the code
	@$(PY) -m detector.catalog > docs/catalog.md
	@$(PY) -m detector.knobs > docs/knobs.md
	@$(PY) scripts/docs.py

evaluate: $(RUNTIME) ## measure detection and diagnosis on the recorded runs
	@$(RANKWATCH) evaluate datasets/runs

bench: $(DEV) ## time the parts that must be fast
	@for file in benchmarks/bench_*.py; do echo "== $$file" >&2; $(PY) "$$file"; done

wheel: $(DEV) ## build the wheel into dist/
	$(PY) -m build --wheel --no-isolation --outdir dist .

lock: $(DEV) ## pin again what pyproject.toml allows (UPGRADE=--upgrade for newer releases)
	$(LOCK) --extra train --build-deps-for editable --output-file requirements/runtime.lock pyproject.toml
	$(LOCK) --all-extras --constraint requirements/runtime.lock --output-file requirements/dev.lock pyproject.toml

clean: ## remove what was built or cached; keeps $(VENV)
	rm -rf build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

# --- the environment ---------------------------------------------------------------------------------------------------

# The locks name no package index: whichever one pip is set up with is asked, and hashes decide what is taken.
LOCK = env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND='make lock' $(VENV)/bin/pip-compile --quiet --generate-hashes \
	--allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
	$(UPGRADE)

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "rankwatch needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there)" >&2; \
	  echo "hint: name one, as in 'make PYTHON=python3.12 ...'" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments" >&2; \
	  echo "hint: on Debian and Ubuntu, 'apt-get install python3-venv'" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements/runtime.lock pyproject.toml | $(PY)
	@echo "installing into $(VENV); once; half a minute or so ..." >&2
	@$(INSTALL) --no-compile --require-hashes -r requirements/runtime.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.lock requirements/runtime.lock pyproject.toml | $(PY)
	@echo "installing into $(VENV), with the tools for development; once; a minute or two ..." >&2
	@$(INSTALL) --require-hashes -r requirements/dev.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $(RUNTIME) $@
