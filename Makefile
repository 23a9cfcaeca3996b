# Needs Python 3.11 or newer and make; everything else is installed into .venv. `make help` lists targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TREE := build/tree
FUZZ ?= 10000
SEED ?= $(shell date +%j)
ARRAYS ?= tests/semantics
TINY := tests/ir tests/loopnest tests/passes tests/codegen/objects/test_store.py tests/test_cli.py tests/test_repository.py

# Other Pythons run what depends on the interpreter. 3.12 does so with the oldest NumPy, Numba and llvmlite that
# pyproject.toml admits, 3.13 with the newest ones that pip finds. `make test OTHERS=` leaves them out.
OTHERS ?= 3.11 3.12 3.13
OLDEST := 3.12
INTERPRETER ?= tests/engine tests/codegen/objects/test_loader.py tests/test_cold_start.py \
	tests/semantics/test_failure.py tests/semantics/test_threads.py tests/semantics/test_interrupts.py \
	tests/semantics/test_surroundings.py tests/semantics/test_watching.py tests/semantics/test_numbers.py \
	tests/semantics/test_piecewise.py tests/semantics/test_giving_up.py tests/semantics/test_realistic.py \
	tests/semantics/test_tree.py tests/semantics/test_called_looks.py \
	tests/semantics/test_chosen_elements.py tests/frontend/test_interop.py tests/frontend/test_liveness.py

# Three processes, as some tests wait for timeouts, and a file's tests in one of them: they share kernels and fixtures.
# A process that crashes ends the run, which would wait for ever for the tests of another one in its place.
TOGETHER := -n 3 --dist loadfile --max-worker-restart 0

# With the cases that `make test` leaves out, see tests/thorough.py.
EVERY := -m ""

# Tests start hundreds of processes: each would compile tracejit's Python once more, 0.35 s.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all thorough tiny lint types fuzz gpu-semantics gpu-test bench docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-15s%s\n", $$1, $$2}' Makefile

demo: $(VENV)/.examples ## Train a small network and show what was compiled
	$(BIN)/python examples/digits.py

test: test-venv $(OTHERS:%=test-on-%) ## Run all tests, and on other Pythons what depends on the interpreter

.PHONY: test-venv
test-venv: $(VENV)/.test
	$(BIN)/python -m pytest $(TOGETHER)

test-all: ## Run all tests on all Pythons
	$(MAKE) test INTERPRETER=tests TOGETHER='$(TOGETHER) $(EVERY)'

thorough: $(VENV)/.test ## Run the further cases that `make test` leaves out
	$(BIN)/python -m pytest $(TOGETHER) -m thorough

# The tests `INTERPRETER` on another Python.
test-on-%: test-venv environment-of-%
	@set -e; $(call is-other,$*) || exit 0; if test -x $(VENV)-$*/bin/python; then \
	  exec $(MAKE) --no-print-directory run-on-$*; \
	fi; echo "No Python $* is installed here: NOTHING WAS TESTED ON IT"

# One after the other: each writes the package's metadata beside it.
.PHONY: environments
environments: $(VENV)/.test
	@set -e; for version in $(OTHERS); do $(MAKE) --no-print-directory environment-of-$$version; done

# Its environment: of the Python on the path, or pyenv's newest.
is-other = $(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] == "$1")'

environment-of-%: | $(BIN)/python
	@set -e; $(call is-other,$*) || exit 0; \
	for python in python$* $$(ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$*.*/bin/python 2>/dev/null | sort -rV); do \
	  if "$$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$*")' 2>/dev/null; then \
	    test -x $(VENV)-$*/bin/python || "$$python" -m venv $(VENV)-$*; \
	    exec $(MAKE) --no-print-directory $(VENV)-$*/.test; \
	  fi; \
	done

run-on-%: $(VENV)-%/.test
	$(VENV)-$*/bin/python -m pip --disable-pip-version-check list 2>/dev/null | grep -E '^(numpy|numba|llvmlite) '
	$(VENV)-$*/bin/python -m pytest $(TOGETHER) $(INTERPRETER)

.PRECIOUS: $(VENV)-%/.test
$(VENV)-%/.test: pyproject.toml Makefile
	$(VENV)-$*/bin/python -m pip --disable-pip-version-check install --quiet --upgrade --editable '.[test]' \
	  $(if $(filter $*,$(OLDEST)),$(shell sed -nE 's/^    "(numpy|numba|llvmlite)>=([0-9.]+)",$$/\1==\2/p' pyproject.toml))
	@touch $@

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
	TRACEJIT_FUZZ=$(FUZZ) $(BIN)/python -m pytest $(EVERY) tests/fuzz tests/semantics/test_watching.py

gpu-semantics: $(VENV)/.test ## Run the tests of arrays on the GPU's stand-in, then with random failures of its driver
	TRACEJIT_TEST_DEVICE=gpu:0 $(BIN)/python -m pytest $(TOGETHER) $(EVERY) $(ARRAYS)
	TRACEJIT_TEST_DEVICE=gpu:0 TRACEJIT_TEST_SEED=$(SEED) TRACEJIT_TEST_FAILURES=0.002 \
	  $(BIN)/python -m pytest $(TOGETHER) $(EVERY) $(ARRAYS)

gpu-test: ## Run the tests of GPUs on a real one, without network: PYTHON has Numba, pytest and hypothesis
	$(PYTHON) -m pip --disable-pip-version-check install --quiet --no-index --no-deps --no-build-isolation --editable .
	TRACEJIT_REAL_GPU=1 $(PYTHON) -m pytest $(EVERY) tests/gpu tests/codegen/gpu
	$(PYTHON) -m benchmarks.gpu

bench: $(VENV)/.bench ## Compare with NumPy, JAX, torch.compile and others
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs ## Build the documents as a site, build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/docs/index.html"

clean: ## Remove the environment and all that was built
	rm -rf $(VENV) $(VENV)-3.* build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.test: pyproject.toml Makefile | $(BIN)/python
	$(PIP) install --quiet --editable '.[test,dist]' || { $(PIP) install --quiet --editable '.[test]' && \
	  echo "MPI does not install here: NOTHING WAS TESTED ON SEVERAL RANKS"; }
	@touch $@

$(VENV)/.examples $(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[$(subst $(VENV)/.,,$@)]'
	@touch $@

# A peer that does not install here is left out of the comparison; the harness names those it misses.
$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[bench]' || { $(PIP) install --quiet --editable . && \
	  for peer in jax torch==2.13.0 numexpr matplotlib scikit-learn; do $(PIP) install --quiet $$peer || true; done; }
	@touch $@
