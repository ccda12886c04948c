"""Which stages of a check run: all of them, unless one is skipped by name."""

from __future__ import annotations

from typing import Any

from tanjax._errors import CheckFailure, message

# Checks compile much and run little: without optimisation they are twice as fast.
COMPILER: Any = {"xla_backend_optimization_level": 0}


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
