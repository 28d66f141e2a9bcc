# Everything a developer or CI runs. Needs Python 3.11 or newer; `.venv` is made on first use and kept up to date.

VENV := .venv
BIN := $(VENV)/bin
# The first of these that is new enough makes the environment; `make PYTHON=/path/to/python3 ...` overrides.
PYTHONS := python3 python3.13 python3.12 python3.11 python
PYTHON ?=
PYTEST_ARGS ?=
# One more than there are cores: a third of the tests' time is waiting, for a disk, an endpoint or a process.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test pythons lint format lock clean

help: ## list what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.runtime ## replay bundled incidents against a simulated model: no key, no network
	@$(BIN)/replay-ledger demo

test: $(VENV)/.dev ## run the tests, on SQLite and on a real Postgres
	@$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(PYTEST_ARGS)

# The whole suite on another Python: make VENV=build/python3.13 PYTHON=python3.13 test
pythons: $(VENV)/.dev ## check that every Python on this machine makes the same reports
	@$(BIN)/python -m tests.other_pythons

lint: $(VENV)/.dev ## check style, types and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## mend what of the style a tool can mend
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment whose Python has gone, by an upgrade say, is made anew: what was installed counts no longer.
$(shell $(BIN)/python -c '' 2>/dev/null || rm -f $(VENV)/.runtime $(VENV)/.dev)

# Each set of dependencies is installed from its lock file alone, every file's hash checked; then this project, as it
# lies here. The build backend is in the lock file too, so nothing unchecked is fetched on the way.

$(VENV)/.runtime: constraints.txt pyproject.toml | $(BIN)/python
	@echo "installing what replay-ledger needs to run into $(VENV)"
	@$(BIN)/python -m pip install -q --require-hashes -r constraints.txt
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: constraints-dev.txt pyproject.toml | $(BIN)/python
	@echo "installing replay-ledger's tools and dependencies into $(VENV)"
	@$(BIN)/python -m pip install -q --require-hashes -r constraints-dev.txt
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.runtime

$(BIN)/python:
	@for python in $(or $(PYTHON),$(PYTHONS)); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$python cannot make virtual environments. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; \
	  fi; \
	  echo "making $(VENV) with $$("$$python" -V)"; \
	  exec "$$python" -m venv --clear $(VENV); \
	done; \
	echo "replay-ledger needs Python 3.11 or newer; tried: $(or $(PYTHON),$(PYTHONS))." >&2; \
	echo "Where it has another name: make PYTHON=/path/to/python3.12 ..." >&2; exit 1

# The lock files name versions and hashes for every platform and every supported Python, and no index: where packages
# come from is the machine's own setting.

LOCK := build/lock/bin/uv pip compile pyproject.toml - --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(LOCK_ARGS)

lock: | build/lock/bin/uv ## resolve the dependencies anew into the lock files; LOCK_ARGS=--upgrade for newer versions
	@echo 'setuptools>=77' | $(LOCK) -o constraints.txt
	@echo 'setuptools>=77' | $(LOCK) -c constraints.txt --extra dev -o constraints-dev.txt

build/lock/bin/uv: | $(BIN)/python
	@$(BIN)/python -m venv build/lock
	@build/lock/bin/python -m pip install -q uv
