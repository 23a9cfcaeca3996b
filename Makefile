# Needs Python 3.11 or newer and make; everything else is installed into .venv. `make help` lists targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TREE := build/tree
FUZZ ?= 10000
TINY := tests/ir tests/loopnest tests/passes tests/codegen/objects/test_store.py tests/test_cli.py tests/test_repository.py

.DEFAULT_GOAL := help
.PHONY: help demo test tiny lint types fuzz bench docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s%s\n", $$1, $$2}' Makefile

demo: $(VENV)/.examples ## Train a small network and show what was compiled
	$(BIN)/python examples/digits.py

test: $(VENV)/.test ## Run all tests
	$(BIN)/python -m pytest -n auto --maxprocesses 2

tiny: $(VENV)/.test ## Run the tests that take seconds
	$(BIN)/python -m pytest $(TINY)

lint: $(VENV)/.test ## Check style, format and the layers of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	rm -rf $(TREE) && mkdir -p $(TREE)
	cp -R tracejit $(TREE)/tracejit && cp -R kernels $(TREE)/tracejit/kernels
	cd $(TREE) && $(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml --no-cache

types: $(VENV)/.test ## Check types
	$(BIN)/mypy

fuzz: $(VENV)/.test ## Run random programs against NumPy; FUZZ=n says how many
	TRACEJIT_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz

bench: $(VENV)/.bench ## Compare with NumPy, JAX, torch.compile and others
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs ## Build the documents as a site, build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/docs/index.html"

clean: ## Remove the environment and all that was built
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.examples $(VENV)/.test $(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[$(subst $(VENV)/.,,$@)]'
	@touch $@

# A peer that does not install here is left out of the comparison; the harness names those it misses.
$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[bench]' || { $(PIP) install --quiet --editable . && \
	  for peer in jax torch==2.13.0 numexpr matplotlib scikit-learn; do $(PIP) install --quiet $$peer || true; done; }
	@touch $@
