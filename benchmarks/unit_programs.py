"""The programs of `bench_units.py`: many arguments, long programs, their gradients."""

from __future__ import annotations

import collections
import functools
import operator
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from unit_libraries import Library

Thunk = Callable[[], Any]
OPERATIONS = (50, 500)
JUDGED = ("100 arguments", "a dict of 100", "a list of 100")  # compiled calls with a budget


def total(*xs: Any) -> Any:
    """Return one result of many arguments."""
    return functools.reduce(operator.add, xs)


def total_of_dict(xs: dict[str, Any]) -> Any:
    """Return one result of a tree."""
    return total(*xs.values())


def total_of_list(xs: list[Any]) -> Any:
    """Return one result of a list."""
    return total(*xs)


def doubles(*xs: Any) -> Any:
    """Return as many results as arguments."""
    return tuple(x + x for x in xs)


def chain(n: int, x: Any, y: Any, t: Any) -> Any:
    """Run `n` operations: products and quotients with another unit, sums; values stay near y."""
    for _ in range(n // 5):
        x = x * t
        x = x / t
        x = x + y
        z = y / x
        x = y * z
    return x


def compiled_calls(library: Library) -> dict[str, Thunk]:
    """Return calls of compiled functions, by name of the row."""
    xs = [library.wrap(jnp.arange(3.0) + i, "m") for i in range(100)]
    tree = {str(i): x for i, x in enumerate(xs)}
    one, ten, hundred, of_dict, of_list, results = (
        library.jit(f) for f in (total, total, total, total_of_dict, total_of_list, doubles)
    )
    return {
        "1 argument": lambda: one(xs[0]),
        "10 arguments": lambda: ten(*xs[:10]),
        "100 arguments": lambda: hundred(*xs),
        "a dict of 100": lambda: of_dict(tree),
        "a list of 100": lambda: of_list(xs),
        "100 arguments, 100 results": lambda: results(*xs),
    }


def fresh(n: int, library: Library, gradient: bool) -> Callable[..., Any]:
    """Return a function that no cache has seen."""
    if not gradient:
        return lambda x, y, t: chain(n, x, y, t)
    grad = library.grad

    def gradient_of_chain(x: Any, y: Any, t: Any) -> Any:
        return grad(lambda x: chain(n, x, y, t).sum())(x)

    return gradient_of_chain


def operands(library: Library) -> tuple[Any, Any, Any]:
    """Return arguments of `chain`."""
    numbers = jnp.arange(1.0, 4.0)
    wrap = library.wrap
    return wrap(numbers, "m"), wrap(numbers + 1.0, "m"), wrap(numbers + 2.0, "s")


def traces(library: Library) -> dict[str, Thunk]:
    """Return traces of fresh functions, by name of the row."""
    args = operands(library)

    def trace(n: int, gradient: bool = False) -> Any:
        return library.jit(fresh(n, library, gradient)).trace(*args)

    return {
        **{f"trace, {n} operations": functools.partial(trace, n) for n in OPERATIONS},
        "trace and lower, 500 operations": lambda: trace(500).lower(),
        **{
            f"trace of the gradient, {n} operations": functools.partial(trace, n, True)
            for n in OPERATIONS
        },
        "first call, 50 operations": lambda: library.jit(fresh(50, library, False))(*args),
        "first call, 500 operations": lambda: library.jit(fresh(500, library, False))(*args),
    }


def operation_counts(library: Library, gradient: bool) -> dict[str, int]:
    """Count each operation in the optimised program of `chain`."""
    lowered = library.jit(fresh(50, library, gradient)).lower(*operands(library))
    text = lowered.compile().as_text()
    names = re.findall(r"^\s*(?:ROOT )?%?\S+ = .*? ([a-z][a-z\-]*)\(", text, re.MULTILINE)
    return dict(collections.Counter(names))


_IMPORT = """
import time, jax
start = time.perf_counter()
import tanjax
print(time.perf_counter() - start)
"""


def import_seconds(rounds: int) -> float:
    """Time `import tanjax` after `import jax`, best of fresh processes, bytecode on disk."""
    # With this variable set, Python compiles 300 modules at every start.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    run = lambda: subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True, env=kept
    )
    run()
    return min(float(run().stdout) for _ in range(rounds))
