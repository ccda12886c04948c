"""The programs of `bench_mutation.py`: with Refs, and without."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import tanjax as tj
from tanjax_rules.inplace.cholesky import factor_cholesky

BUFFERS = "Gradients of eight micro-batches"
INDEXED = "Reverse mode of n indexed reads and writes"
CALLS = "Calls that write to their arguments"
CHOLESKY = "Gradient of an in-place Cholesky factorisation"
LENGTHS = (1000, 8000)
MICRO_BATCHES, LAYERS = 8, 4

Program = tuple[Any, Callable[[], tuple[Any, ...]]]  # a jitted function, and its arguments


@dataclasses.dataclass
class Group:
    """Equivalent programs; `size`: the bytes that memory is compared with."""

    name: str
    size: int
    programs: dict[str, Program]


def groups(quick: bool) -> Iterator[Group]:
    """Yield all groups."""
    yield buffers(128 if quick else 512)
    for n in LENGTHS:
        yield indexed(n)
    yield calls(10_000 if quick else 2_000_000)
    yield cholesky(32 if quick else 128)


# -- gradients of micro-batches ----------------------------------------------------------------


def loss(p: Any, x: Any) -> Any:
    """Return the loss of some dense layers and a diagonal one."""
    for w in p["w"]:
        x = jnp.tanh(x @ w)
    return jnp.sum((p["d"] @ x.T) ** 2)


def buffers(n: int) -> Group:
    """Accumulate into Refs and into sums of trees; in a scan and unrolled."""
    p = {"w": [jnp.eye(n) / 2] * LAYERS, "d": tj.Diagonal(jnp.ones(n))}
    data = jnp.ones((MICRO_BATCHES, 16, n))
    refs = tj.refs.zero_refs(p)
    sums = lambda: jax.tree.map(jnp.zeros_like, p)
    plus = lambda a, b: jax.tree.map(jnp.add, a, b)

    def scan_refs(p: Any, refs: Any, data: Any) -> Any:
        step = tj.value_and_grad(loss, into=refs)
        return jax.lax.scan(lambda _, x: (None, step(p, x)), None, data)[1]

    def unrolled_refs(p: Any, refs: Any, data: Any) -> Any:
        step = tj.value_and_grad(loss, into=refs)
        return [step(p, x) for x in data]

    def scan_sum(p: Any, total: Any, data: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            value, gradient = jax.value_and_grad(loss)(p, x)
            return plus(total, gradient), value

        return jax.lax.scan(body, total, data)

    def unrolled_sum(p: Any, total: Any, data: Any) -> Any:
        for x in data:
            total = plus(total, jax.grad(loss)(p, x))
        return total

    return Group(
        BUFFERS,
        sum(x.nbytes for x in jax.tree.leaves(p)),
        {
            "into Refs, scan": (jax.jit(scan_refs), lambda: (p, refs, data)),
            "into Refs, unrolled": (jax.jit(unrolled_refs), lambda: (p, refs, data)),
            "sum in a scan": (jax.jit(scan_sum), lambda: (p, sums(), data)),
            "sum in a scan, donated": (
                jax.jit(scan_sum, donate_argnums=1),
                lambda: (p, sums(), data),
            ),
            "sum of trees, unrolled": (jax.jit(unrolled_sum), lambda: (p, sums(), data)),
        },
    )


# -- indexed reads and writes ------------------------------------------------------------------


def indexed(n: int) -> Group:
    """Run the recurrence `r[k + 1] = sin(r[k]) q[k]`, differentiated by its start and by `q`."""

    def on_refs(start: Any, q: Any) -> Any:
        r, q = jax.new_ref(jnp.zeros(n + 1).at[0].set(start)), jax.new_ref(q)

        def body(k: Any, _: None) -> None:
            r[k + 1] = jnp.sin(r[k]) * q[k]

        jax.lax.fori_loop(0, n, body, None)
        return jnp.sum(jax.freeze(r))

    def on_scan(start: Any, q: Any) -> Any:
        step = lambda r, q: ((s := jnp.sin(r) * q), s)
        return start + jnp.sum(jax.lax.scan(step, start, q)[1])

    args = lambda: (jnp.float32(0.5), jnp.linspace(0.5, 1.5, n))
    derive = lambda f: jax.jit(jax.grad(f, (0, 1)))
    return Group(
        f"{INDEXED}, n = {n:,}",
        4 * n,
        {
            "JAX's Refs": (derive(on_refs), args),
            "tj.refs.discharge": (derive(tj.refs.discharge(on_refs)), args),
            "scan": (derive(on_scan), args),
        },
    )


# -- calls that write to their arguments -------------------------------------------------------


@tj.inplace(mutates="x")
def set_first(x: Any) -> Any:
    """Set the first entry to 1, as the first example of the docs does."""
    x[0] = 1.0
    return x


@tj.inplace(mutates=("x", "m"))
def descend(x: Any, m: Any, g: Any) -> None:
    """Take a step with momentum."""
    m[...] = 0.9 * m[...] + g
    x[...] = x[...] - 0.1 * m[...]


def calls(n: int) -> Group:
    """Write one entry, and take a step with momentum: on Refs, donated, and as functions."""
    x, m = jax.new_ref(jnp.zeros(n)), jax.new_ref(jnp.zeros(n))
    g = jnp.ones(n)

    def set_on_refs(x: Any) -> None:
        set_first(x)

    def functional(x: Any) -> Any:
        return x.at[0].set(1.0)

    def step(x: Any, m: Any, g: Any) -> Any:
        m = 0.9 * m + g
        return x - 0.1 * m, m

    return Group(
        CALLS,
        4 * n,
        {
            "Refs, one entry": (jax.jit(set_on_refs), lambda: (x,)),
            "donated, one entry": (jax.jit(functional, donate_argnums=0), lambda: (jnp.zeros(n),)),
            "function, one entry": (jax.jit(functional), lambda: (g,)),
            "Refs, momentum": (jax.jit(lambda x, m, g: descend(x, m, g)), lambda: (x, m, g)),
            "donated, momentum": (
                jax.jit(step, donate_argnums=(0, 1)),
                lambda: (jnp.zeros(n), jnp.zeros(n), g),
            ),
            "function, momentum": (jax.jit(step), lambda: (g, g, g)),
        },
    )


def cholesky(n: int) -> Group:
    """Factorise by the shipped rule, by its body alone, on JAX's Refs, and by JAX itself."""
    a = jnp.eye(n) + 0.1 * jnp.cos(jnp.outer(jnp.arange(n), jnp.arange(n)))

    def on_refs(a: Any) -> Any:
        r = jax.new_ref(a)
        factor_cholesky.__wrapped__(r)
        return jax.freeze(r)

    factors = {
        "by the rule": lambda a: factor_cholesky.transition(a).state[0],
        "derived": tj.refs.discharge(on_refs),
        "JAX's Refs": on_refs,
        "jax.numpy": jnp.linalg.cholesky,
    }
    derive = lambda f: jax.jit(jax.grad(lambda a: jnp.sum(jnp.sin(f(a)))))
    programs = {name: (derive(f), lambda: (a,)) for name, f in factors.items()}
    return Group(f"{CHOLESKY}, n = {n}", 4 * n * n, programs)
