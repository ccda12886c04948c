"""The stages of a check: all of them, except those skipped by name."""

from __future__ import annotations

import functools
from typing import Any

import jax

from tanjax._errors import CheckFailure, message
from tanjax._typing import Function

# Checks compile much and run little. XLA has one of the last two options, by its version.
FAST: tuple[dict[str, bool | int], ...] = (
    {"xla_backend_optimization_level": 0},
    {"xla_llvm_disable_expensive_passes": True},
    {"xla_cpu_parallel_codegen_split_count": 1},
    {"xla_cpu_use_fusion_emitters": False},
    {"xla_cpu_use_new_xtile_lowering": False},
)


@functools.cache
def compiler_options() -> dict[str, bool | int]:
    """Return the options of `FAST` that this XLA has, for fast compilation.

    With these options the Jacobian of a solve takes 0.09 s of CPU instead of 0.24 (JAX 0.10), and
    0.23 instead of 0.30 (JAX 0.12). The numbers agree to rounding, and the kit does not time users'
    programs. An unknown option is an error of the compiler, so each option is tried once.
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
    """Return `jax.jit` of a function that is compiled for one check."""
    fast: Any = compiler_options()
    return jax.jit(f, compiler_options=fast)


def choose(
    where: str, known: tuple[str, ...], modes: tuple[str, ...] | None, skip: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the stages to run, in order.

    **Raises:** `ValueError` for an unknown stage, `CheckFailure` for a stage that is neither
    chosen nor skipped by name: a check must not do less than it reports.
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
