"""The programs of `bench_capture.py`: structured algebra, nested loops, one of each function."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import tanjax as tj

ALGEBRA = "125 equations of structured algebra"
LOOPS = "Loops in loops around structured algebra"
LAYERS, DEPTHS = 25, (1, 2, 4, 6)
N = 4


def arguments() -> tuple[Any, ...]:
    """Return a definite matrix, a diagonal, a vector."""
    return jnp.eye(N) * 3 + 0.1, jnp.linspace(0.5, 1.0, N), jnp.ones(N)


def algebra(a: Any, d: Any, x: Any) -> Any:
    """Compute per layer a solve, a product, a tanh, a log determinant, a sum."""
    s, total = tj.Symmetric(a, definite=True), 0.0
    for _ in range(LAYERS):
        x = jnp.tanh(tj.matmul(tj.Diagonal(d), tj.solve(s, x)))
        total = total + tj.logdet(s)
    return jnp.sum(x) + total


def loops(a: Any, d: Any, x: Any) -> Any:
    """Run a scan around a loop around a branch, each with a structured equation and a closure."""
    s = tj.Symmetric(a, definite=True)

    def inner(i: Any, x: Any) -> Any:
        return tj.cond(x[0] > i, lambda x: tj.matmul(tj.Diagonal(d), x), jnp.tanh, x)

    def outer(x: Any, row: Any) -> Any:
        x = tj.fori_loop(0, 3, inner, tj.solve(s, x) + row)
        return x, tj.logdet(s)

    x, logs = tj.scan(outer, x, jnp.ones((5, N)))
    return jnp.sum(x) + jnp.sum(logs)


def fresh(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function under a new identity, without a cached trace."""
    return lambda *args: f(*args)


def nested(depth: int) -> Callable[..., Any]:
    """Return scans in scans to this depth; each closes over the diagonal."""

    def f(d: Any, x: Any) -> Any:
        def body(level: int) -> Callable[..., Any]:
            def step(x: Any, _: Any) -> Any:
                if level < depth:
                    x, _ = tj.scan(body(level + 1), x, None, length=2)
                return tj.matmul(tj.Diagonal(d), x), None

            return step

        return tj.scan(body(1), x, None, length=2)[0]

    return f


def single() -> dict[str, Callable[..., Any]]:
    """Return one higher-order call each, with a body of one structured equation and a closure."""
    times = lambda d: lambda x: tj.matmul(tj.Diagonal(d), x)
    loss = lambda d: lambda x: jnp.sum(times(d)(x) ** 2)
    return {
        "scan": lambda d, x: tj.scan(lambda x, _: (times(d)(x), None), x, None, length=3)[0],
        "while_loop": lambda d, x: tj.while_loop(lambda x: x[0] > 0.1, times(d), x),
        "fori_loop": lambda d, x: tj.fori_loop(0, 3, lambda i, x: times(d)(x), x),
        "cond": lambda d, x: tj.cond(x[0] > 0, times(d), jnp.tanh, x),
        "vmap": lambda d, x: tj.vmap(times(d))(jnp.stack([x, x])),
        "grad": lambda d, x: tj.grad(loss(d))(x),
        "jacobian": lambda d, x: tj.jacobian(times(d))(x),
        "checkpoint": lambda d, x: tj.checkpoint(times(d))(x),
        "jit": lambda d, x: tj.jit(times(d), scale=False)(x),
    }


def calls_without_gate() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """Yield calls that do almost no work: unchanged, and with the gate cut out."""

    @tj.operation
    def nothing(x: Any) -> Any:
        return x

    x = jnp.ones(N)
    nothing(x)
    nothing._compiled.update(dict.fromkeys(nothing._compiled, lambda *args: None))
    call = type(nothing).__call__
    bare = _without_gate(call)
    yield "an operation", lambda: call(nothing, x), lambda: bare(nothing, x)


def _without_gate(function: Any) -> Any:
    """Compile the function from its source without the branch that checks for a capture."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (found,) = tree.body
    kept = [line for line in found.body if not _is_gate(line)]
    assert len(kept) == len(found.body) - 1
    found.body = kept
    scope = dict(function.__globals__, **inspect.getclosurevars(function).nonlocals)
    exec(compile(tree, "<without the gate>", "exec"), scope)
    return scope[function.__name__]


def _is_gate(line: Any) -> bool:
    return isinstance(line, ast.If) and "capturing()" in ast.unparse(line.test)


def plain_trace(f: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    """Return JAX's trace of a function, without caches."""
    return lambda: jax.make_jaxpr(fresh(f))(*args)
