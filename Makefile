# Every target works from a clean checkout: it makes a virtual environment first if there is none.
#
#   make test                                    the default python3 and the newest JAX it can have
#   make test PYTHON=python3.11 JAX=0.10.2       another pair, in an environment of its own

PYTHON ?= python3
JAX ?=
VENV ?= .venv$(if $(JAX),-jax-$(JAX))
WORKERS ?= 2
CASES ?= --tanjax-check tanjax_rules --tanjax-check tanjax
CORE ?= tests/library/test_layering.py tests/library/test_derivatives_of_loops.py tests/registry tests/transforms tests/scale tests/capture tests/mutation tests/arrays/test_maps.py tests/dispatch/lift tests/dispatch/together/test_conformance.py
FAST ?= tests/library/test_layering.py tests/units tests/registry tests/scale/graph/test_graph.py tests/scale/replay/test_flags.py

BIN := $(VENV)/bin

# One thread per process: the test workers share the cores, and timings compare like with like.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

# Tests start dozens of processes, and each would compile 300 modules of Python.
unexport PYTHONDONTWRITEBYTECODE

# What the tests compile is kept for the next run: much of their time is XLA's.
test test-core test-fast test-torch check: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/$(VENV)/.compiled
test test-core test-fast test-torch check: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
test test-core test-fast test-torch check: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := -1

.PHONY: help demo demo-torch test test-core test-fast test-torch check lint docs bench clean
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

test: $(VENV)/.ready-test  ## unit and property tests, cases of every rule, examples of every type, documentation, examples
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(CASES)

test-core: $(VENV)/.ready-test  ## what changes with JAX: rules, transformations, plans, programs, Refs, lifted functions
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(CORE)

test-fast: $(VENV)/.ready-test  ## for every save of a file: layers, units, arrays, rules, plans in little
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -x -q $(FAST)

check: $(VENV)/.ready-test  ## the cases of every rule by themselves
	$(BIN)/python -m tanjax check tanjax_rules --quiet -j $(WORKERS)

test-torch: $(VENV)/.ready-test $(VENV)/.ready-torch  ## the same for PyTorch, which it installs (Python 3.11: a CPU build)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/bridges/torch docs/test_api_torch.py \
		'docs/test_docs.py::test_page[docs/pages/torch.md]' \
		'docs/test_docs.py::test_example[torch_digits.py]' docs/test_docs.py::test_docstrings

lint: $(VENV)/.ready-test  ## style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy src rules

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
	rm -rf .venv .venv-* docs/site tanjax_demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src rules tests property_tests docs benchmarks -name __pycache__ -prune -exec rm -rf {} +

# `.ready-test` says that the extra `test` is installed; a change of pyproject.toml installs it anew.
$(VENV)/.ready-%: pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable ".[$*]" "jax$(if $(JAX),==$(JAX))"
	touch $@
