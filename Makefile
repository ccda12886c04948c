# Every target works from a clean checkout: it makes a virtual environment first if there is none.
#
#   make test                                    the default python3 and the newest JAX it can have
#   make test PYTHON=python3.11 JAX=0.10.2       another pair, in an environment of its own
#   make test-all ARGS='-m "not torch"'          more arguments; also of plant: ARGS='--only solve'

PYTHON ?= python3
JAX ?=
VENV ?= .venv$(if $(JAX),-jax-$(JAX))
WORKERS ?= 2
ARGS ?=
FAST ?= tests/library/test_layering.py tests/units tests/registry tests/scale/graph/test_graph.py tests/scale/replay/test_replay.py

# The examples of all types and the cases of all rules are tests, too.
TYPES := --tanjax-check tanjax
CASES := $(TYPES) --tanjax-check tanjax_rules

BIN := $(VENV)/bin

# One thread per process: the test workers share the cores, and timings compare like with like.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

# Tests start dozens of processes, and each would compile 300 modules of Python.
unexport PYTHONDONTWRITEBYTECODE

# What the tests compile is kept for the next run: much of their time is XLA's.
TESTS := test test-all test-core test-fast test-torch check plant
$(TESTS): export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/$(VENV)/.compiled
$(TESTS): export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
$(TESTS): export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := -1

.PHONY: help demo demo-torch $(TESTS) lint docs bench clean
.SECONDARY:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 8

demo: $(VENV)/.ready-demo  ## a Gaussian process; the solar system in units and in float32; light in float16; training in place; programs, passes, circuits
	$(BIN)/python docs/examples/gaussian_process.py
	$(BIN)/python docs/examples/solar_system.py
	$(BIN)/python docs/examples/solar_system_float32.py
	$(BIN)/python docs/examples/fdtd_float16.py
	$(BIN)/python docs/examples/training_in_place.py
	$(BIN)/python docs/examples/captured_gp.py
	$(BIN)/python docs/examples/circuits.py
	@echo
	@echo 'And with PyTorch installed, `make demo-torch`: an nn.Module with a Kronecker layer learns'
	@echo 'handwritten digits by torch.optim and by optax to the same accuracy: eager, exported, compiled.'

demo-torch: $(VENV)/.ready-demo $(VENV)/.ready-torch  ## digits by a Kronecker layer in PyTorch: torch.optim, optax, export, torch.compile
	$(BIN)/python docs/examples/torch_digits.py

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/.ready-test  ## the tests, without the slow ones, those of several processes, and PyTorch's
	$(PYTEST) $(TYPES) -m "not slow and not processes and not torch"

test-all: $(VENV)/.ready-test  ## everything (PyTorch's tests where it is installed)
	$(PYTEST) $(CASES) $(ARGS)

test-core: $(VENV)/.ready-test  ## what changes with JAX: rules and their cases, transformations, plans, programs, Refs
	$(PYTEST) $(CASES) -m core $(ARGS)

test-fast: $(VENV)/.ready-test  ## for every save of a file: layers, units, rules, plans in little
	$(PYTEST) -x -q $(FAST)

test-torch: $(VENV)/.ready-test $(VENV)/.ready-torch  ## PyTorch's, which it installs (Python 3.11: a CPU build)
	$(PYTEST) -m torch

check: $(VENV)/.ready-test  ## the cases of every rule by themselves
	$(BIN)/python -m tanjax check tanjax_rules --quiet -j $(WORKERS)

plant: $(VENV)/.ready-test  ## plant bugs in a copy of the tree, one at a time: which test catches each?
	$(BIN)/python tests/support/plant.py $(ARGS)

lint: $(VENV)/.ready-test  ## style, formatting, types and prose
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy src rules
	$(BIN)/python docs/check_prose.py

docs: $(VENV)/.ready-docs  ## build the documentation, warnings are errors
	$(BIN)/mkdocs build --strict --config-file docs/mkdocs.yml

bench: $(VENV)/.ready-bench  ## time structured operations, quantities, plans, Refs and captured programs against plain JAX, and peers
	$(BIN)/python benchmarks/bench_structured.py
	$(BIN)/python benchmarks/bench_units.py
	$(BIN)/python benchmarks/bench_scale.py
	$(BIN)/python benchmarks/bench_mutation.py
	$(BIN)/python benchmarks/bench_capture.py
	@if $(BIN)/python benchmarks/peers.py; then $(BIN)/python benchmarks/bench_peers.py; \
	else echo 'no peer is installed: benchmarks/bench_peers.py was NOT run (pip install -e ".[bench-peers]")'; fi
	@if $(BIN)/python -c 'import torch' 2> /dev/null; then $(BIN)/python benchmarks/bench_torch.py; \
	else echo 'torch is not installed: benchmarks/bench_torch.py was NOT run (`make demo-torch` installs it)'; fi

clean:  ## remove everything that these targets made
	rm -rf .venv .venv-* .planted docs/site tanjax_demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src rules tests property_tests docs benchmarks -name __pycache__ -prune -exec rm -rf {} +

# `.ready-test` says that the extra `test` is installed; a change of pyproject.toml installs it anew.
$(VENV)/.ready-%: pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable ".[$*]" "jax$(if $(JAX),==$(JAX))"
	touch $@
