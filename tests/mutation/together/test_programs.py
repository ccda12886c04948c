"""Programs of several fields, written with Refs as their textbooks write them in place.

Each stands beside its functional form; value, jvp, gradient, Hessian and a batch of gradients must
agree. The functional forms are plain Python on lists of scalars wherever that is short enough.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

pytestmark = pytest.mark.core

X = jnp.array([0.9, -0.4, 1.3, 0.6])
T = jnp.array([0.3, 1.0, -0.6, 0.5])
N = 4
PROGRAMS = {}


def program(reference):
    """Register a program beside its functional form."""

    def register(f):
        PROGRAMS[f.__name__] = (f, reference)
        return f

    return register


def loop(start, stop, body):
    """A loop without a carry: everything is in Refs."""
    lax.fori_loop(start, stop, lambda i, c: (body(i), c)[1], None)


@program(lambda x: jnp.sum(jnp.stack([x[0] ** 2 + x[2] ** 2 + x[3] ** 2, x[1] ** 2]) ** 2))
def histogram(x):
    bins = jax.new_ref(jnp.zeros(2))
    jax.ref.addupdate(bins, (x < 0).astype(jnp.int32), x**2)
    return jnp.sum(bins[...] ** 2)


def stencil_by_arrays(x):
    for _ in range(3):
        x = 0.5 * x + 0.25 * (jnp.roll(x, 1) + jnp.roll(x, -1)) ** 2
    return jnp.sum(x)


@program(stencil_by_arrays)
def ping_pong(x):
    """Two buffers that are swapped: the old one is read while the new one is written."""
    now, then = jax.new_ref(x), jax.new_ref(jnp.zeros(N))

    def step(_):
        def point(i):
            then[i] = 0.5 * now[i] + 0.25 * (now[i - 1] + now[(i + 1) % N]) ** 2

        loop(0, N, point)
        then[...] = jax.ref.swap(now, ..., then[...])

    loop(0, 3, step)
    return jnp.sum(now[...])


@program(lambda x: jnp.sum(jnp.where(x > 0, x**2, 0.0)) * 3.0 + x[1])
def compaction(x):
    """Positive entries moved to the front: an integer counter is the index, a branch decides."""
    out, used = jax.new_ref(jnp.zeros(N)), jax.new_ref(0)

    def keep(i):
        def yes():
            out[used[...]] = x[i] ** 2
            used[...] += 1

        lax.cond(x[i] > 0, yes, lambda: None)

    loop(0, N, keep)
    return jnp.sum(out[...]) * used[...].astype(x.dtype) + lax.cond(
        used[...] > 2, lambda: x[1], lambda: out[0]
    )


@program(lambda x: x[0] * x[1] * x[2] + x[3])
def union_find(x):
    """Integers alone are looked for in a `while_loop`: no gradient goes through it."""
    parent = jax.new_ref(jnp.array([0, 0, 1, 3]))

    def root(i):
        return lax.while_loop(lambda i: parent[i] != i, lambda i: parent[i], i)

    product = jax.new_ref(jnp.ones(N))

    def join(i):
        top = root(i)
        parent[i] = top
        product[top] = product[top] * x[i]

    loop(0, N, join)
    return product[0] + product[3]


def descent_by_arrays(x):
    loss = lambda w: jnp.sum((w * x - jnp.cos(w)) ** 2)
    w, m = jnp.ones(N), jnp.zeros(N)
    for _ in range(2):
        m = 0.9 * m + jax.grad(loss)(w)
        w = w - 0.05 * x[0] * m
    return loss(w)


@program(descent_by_arrays)
def descent(x):
    """Differentiation inside of the program, and through it."""
    w, m = jax.new_ref(jnp.ones(N)), jax.new_ref(jnp.zeros(N))
    loss = lambda w: jnp.sum((w * x - jnp.cos(w)) ** 2)

    def step(_):
        m[...] = 0.9 * m[...] + jax.grad(loss)(w[...])
        w[...] = w[...] - 0.05 * x[0] * m[...]

    loop(0, 2, step)
    return loss(w[...])


@program(lambda x: jnp.sum(jnp.cumsum(jnp.outer(x, jnp.sin(x)), 1)[:, 2] ** 2))
def batched_inside(x):
    """`vmap` of a function that makes a Ref, inside of a discharged one."""

    def one(row):
        r = jax.new_ref(row)

        def add(i):
            r[i] = r[i] + r[i - 1]

        loop(1, N, add)
        return lax.cond(row[0] > 0, lambda: r[2], lambda: -r[2])

    # Discharged where it is mapped: JAX does not map a branch that writes.
    out = jax.new_ref(jax.vmap(tj.refs.discharge(one))(jnp.outer(x, jnp.sin(x))))
    return jnp.sum(out[...] ** 2)


@program(lambda x: jnp.sum(jnp.array([1.0, -1.0, 2.0, 1.0]) * x * jax.nn.relu(x)) * x[0])
def masks_and_closures(x):
    """Flags in a Ref, a writer handed around as a function, a custom derivative of JAX inside."""
    seen = jax.new_ref(jnp.zeros(N, bool))
    total = jax.new_ref(jnp.zeros(N))
    writers = [lambda i, v: total.__setitem__(i, v), lambda i, v: jax.ref.addupdate(total, i, v)]

    def visit(i, writer):
        def first():
            seen[i] = True
            writer(i, x[i] * jax.nn.relu(x[i]))

        lax.cond(seen[i], lambda: None, first)

    for writer in writers:
        loop(0, N, functools.partial(visit, writer=writer))
    jax.ref.addupdate(
        total, jnp.array([2, 1, 1]), total[1:][jnp.array([1, 0, 0])] * jnp.array([1.0, -1.0, -1.0])
    )
    return jnp.sum(total[...] * x[0])


def recursion_by_lists(x):
    a = list(x)
    for i in range(6):
        a.append(a[-1] * a[-2] + jnp.sin(a[-3]))
        del a[0]
        if i % 2:
            a[0] = a[0] ** 2
    return a[-1]


@program(recursion_by_lists)
def ring_buffer(x):
    """Indices that run around, some negative, some of another width."""
    ring = jax.new_ref(x)

    def push(i):
        at = (i % N).astype(jnp.int32)
        ring[at] = ring[at - 1] * ring[at - 2] + jnp.sin(ring[at - 3])
        oldest = (i.astype(jnp.int64) + 1) % N
        lax.cond(i % 2 == 1, lambda: ring.__setitem__(oldest, ring[oldest] ** 2), lambda: None)

    loop(0, 6, push)
    return ring[(6 - 1) % N]


def results(f):
    """Value, jvp, gradient and second derivatives, and gradients that take other branches."""
    gradient = jax.grad(f)
    second = lambda t: jax.jvp(gradient, (X,), (t,))
    return {
        "value, jvp": jax.jvp(f, (X,), (T,)),
        "gradient, Hessian": jax.vmap(second, out_axes=(None, 0))(jnp.stack([T, X])),
        "batch": jax.vmap(gradient)(jnp.stack([X, -T + 0.1])),
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_in_place_agrees_with_its_functional_form(name):
    f, reference = PROGRAMS[name]
    got, expected = jax.jit(lambda: (results(tj.refs.discharge(f)), results(reference)))()
    if name in ("compaction", "histogram", "masks_and_closures", "union_find"):
        # Their functional forms are for the branches of the first row only.
        got["batch"], expected["batch"] = got["batch"][0], expected["batch"][0]
    for mode, value in expected.items():
        close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9, err_msg=mode)
        jax.tree.map(close, got[mode], value)
