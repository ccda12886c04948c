"""Settings of JAX for every test session, shared by `tests` and `property_tests`.

Four CPU devices, so that sharding is tested on any machine. Strict dtype promotion, so that a
silent widening is an error. Float64, so that finite differences can judge. `JAX_ENABLE_X64=0 pytest
FILE` runs a file in float32, and so does the fixture `float32` for one test.

Fast compilation. Tests compile thousands of small programs and run each once or twice, and most of
the time went into LLVM. `XLA_FLAGS= pytest FILE` runs a file with the code that users get. JAX
shortens the traceback of every error that passes through it, which costs a millisecond and more.
Tests raise thousands, and turn that off (`JAX_TRACEBACK_FILTERING=auto`).

Fast lowering. Programs omit their lines of Python (`JAX_TRACEBACK_IN_LOCATIONS_LIMIT=10`). Each
MLIR context serves many programs, as it takes longer to make than most programs take to write.
Garbage is collected more rarely.
"""

import gc
import os

import jax
import pytest

from mlir_contexts import reuse_contexts

FAST_COMPILATION = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)
# An unknown flag ends the process, so each is set only for versions that have it.
if jax.__version_info__[:2] == (0, 10):
    FAST_COMPILATION += " --xla_cpu_use_fusion_emitters=false"
elif jax.__version_info__[:2] == (0, 12):
    FAST_COMPILATION += " --xla_cpu_use_new_xtile_lowering=false"
os.environ.setdefault("XLA_FLAGS", FAST_COMPILATION)

if "JAX_TRACEBACK_FILTERING" not in os.environ:
    jax.config.update("jax_traceback_filtering", "off")
if "JAX_TRACEBACK_IN_LOCATIONS_LIMIT" not in os.environ:
    jax.config.update("jax_traceback_in_locations_limit", 0)
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
if "JAX_ENABLE_X64" not in os.environ:
    jax.config.update("jax_enable_x64", True)

# The heap is large, and most of it lives as long as the session.
gc.set_threshold(50_000, 20, 20)
if jax.__version_info__[:2] == (0, 10):
    reuse_contexts(times=10)


@pytest.fixture
def getkey():
    """Return a function that gives a new random key at every call, the same in every run."""
    key = jax.random.key(0)

    def next_key():
        nonlocal key
        key, fresh = jax.random.split(key)
        return fresh

    return next_key


@pytest.fixture
def float32():
    """Run one test with JAX's default precision."""
    with jax.enable_x64(False):
        yield


@pytest.fixture
def collect():
    """Return a `gc.collect` that scans only objects made by the test.

    Other tests leave a heap of gigabytes, whose scan takes seconds.
    """
    gc.freeze()
    yield gc.collect
    gc.unfreeze()
