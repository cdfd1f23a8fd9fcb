# Every command of this repository; `make help` lists them.
# Needs only make, git and any Python 3.8 or newer: portal/launch/bootstrap.py finds or fetches the
# Python 3.12 that the portal runs on, and fills .venv from the committed lock.

SHELL := /bin/sh
.DEFAULT_GOAL := help
# Old enough Pythons cannot even read bootstrap.py, and a pyenv shim may stand for none: try each.
PYTHON3 ?= $(shell for p in python3 python python3.12 python3.13 python3.14 python3.11 \
	/usr/bin/python3 "$$HOME"/.pyenv/versions/*/bin/python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1 && \
	{ echo "$$p"; break; }; done)
BOOTSTRAP = $(if $(PYTHON3),$(PYTHON3) portal/launch/bootstrap.py,\
	{ echo "No Python 3.8 or newer was found on PATH; install Python 3.12 and run this again." >&2; exit 1; }; :)
PY := .venv/bin/python
LOCK := pip compile pyproject.toml --quiet --no-emit-index-url --universal --generate-hashes \
	--python-version 3.12 --no-header --no-annotate
# make test TESTS=tests/jobs MARKS="not demo" WORKERS=0
WORKERS ?= 2
TESTS ?= tests
MARKS ?=

.PHONY: help run demo test check format lock bench-uploads bench-eta bench-pages clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Set everything up, start the portal, run the main job, stay up until Ctrl-C
	@$(BOOTSTRAP) run
	@exec $(PY) -m portal.launch run

demo: ## As run, but stop after the main job's record; the exit code tells
	@$(BOOTSTRAP) run
	@exec $(PY) -m portal.launch demo

test: ## Set everything up and pass the tests, on embedded parts alone
	@$(BOOTSTRAP) dev
	@exec $(PY) -m pytest -q -n $(WORKERS) --dist loadgroup $(if $(MARKS),-m "$(MARKS)") $(TESTS)

check: ## Format, lint, types, layers, migrations, deploy check, and what no file may hold
	@$(BOOTSTRAP) dev
	@exec $(PY) -m portal.launch.check

format: ## Format and mend what can be mended by machine
	@$(BOOTSTRAP) dev
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

lock: ## Resolve the dependencies again and write both locks
	@uv="$$($(BOOTSTRAP) uv)" && \
	"$$uv" $(LOCK) --output-file requirements.lock && \
	"$$uv" $(LOCK) --all-extras --group dev --output-file requirements-dev.lock

bench-uploads: ## Measure uploads beside @tus/server; ARGS="--pairs 3 --only large,small"
	@$(BOOTSTRAP) dev
	@$(PY) -m tests.bench.uploads $(ARGS)

bench-eta: ## Measure how right the times left of transfers are; ARGS="--changing 20 --steady 5"
	@$(BOOTSTRAP) dev
	@$(PY) -m tests.bench.eta $(ARGS)

bench-pages: ## Measure the live part of a job page with 10,000 pieces; ARGS="--pieces 1000"
	@$(BOOTSTRAP) dev
	@$(PY) -m tests.bench.pages $(ARGS)

clean: ## Remove .venv and caches; the data in var/ stays
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +
	@echo "Removed .venv and caches. The installation's data is still in var/."
