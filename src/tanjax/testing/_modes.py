"""Which stages of a check run: all of them, unless one is skipped by name."""

from __future__ import annotations

import functools
from typing import Any

import jax

from tanjax._errors import CheckFailure, message
from tanjax._typing import Function

# Checks compile much and run little. XLA knows one or the other of the last two, by its version.
FAST: tuple[dict[str, bool | int], ...] = (
    {"xla_backend_optimization_level": 0},
    {"xla_llvm_disable_expensive_passes": True},
    {"xla_cpu_parallel_codegen_split_count": 1},
    {"xla_cpu_use_fusion_emitters": False},
    {"xla_cpu_use_new_xtile_lowering": False},
)


@functools.cache
def compiler_options() -> dict[str, bool | int]:
    """What makes XLA compile fast, of what it knows.

    The Jacobian of a solve took 0.24 s of CPU without optimisation and takes 0.09 (JAX 0.10), 0.30
    and 0.23 (JAX 0.12); the numbers agree to rounding, and a check judges no program of a user. An
    option that it does not know is an error of the compiler, so each is tried once.
    """
    known: dict[str, bool | int] = {}
    for option in FAST:
        try:
            jax.jit(lambda x: x, compiler_options=option)(0.0)
        except Exception:  # its class is XLA's and has changed
            continue
        known |= option
    return known


def compiled(f: Function) -> Function:
    """`jax.jit` of a function that is compiled for one check."""
    fast: Any = compiler_options()
    return jax.jit(f, compiler_options=fast)


def choose(
    where: str, known: tuple[str, ...], modes: tuple[str, ...] | None, skip: tuple[str, ...]
) -> tuple[str, ...]:
    """The stages to run, in order.

    **Raises:** `ValueError` for an unknown stage, `CheckFailure` for one that is neither chosen
    nor skipped by name: a check that quietly does less is worth less than none.
    """
    unknown = (set(modes or ()) | set(skip)) - set(known)
    if unknown:
        raise ValueError(f"{where}: unknown stage {sorted(unknown)}; there are {list(known)}.")
    chosen = tuple(m for m in known if (modes is None or m in modes) and m not in skip)
    missing = [m for m in known if m not in chosen and m not in skip]
    if missing or not chosen:
        raise CheckFailure(
            message(
                f"{where}: stages are left out without being named.",
                f"left out: {missing or list(skip)}",
                hint="name them: `skip=(...)`.",
            )
        )
    return chosen
