"""Reads and writes of parts: as JAX's Refs do them, differentiated, at the price of the part."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from tanjax import _compat

X = jnp.arange(24.0).reshape(4, 6) / 7 + 0.3
T = jnp.cos(jnp.arange(24.0)).reshape(4, 6)
K = jnp.array(2)
ROWS = jnp.array([3, 0])

# Indices that may name traced numbers `k` (= 2) and `rows` (= [3, 0]), and are NumPy's.
INDICES = {
    "whole": lambda k, rows: ...,
    "row": lambda k, rows: 1,
    "entry": lambda k, rows: (1, 2),
    "negative": lambda k, rows: (-1, -2),
    "slice": lambda k, rows: slice(1, 3),
    "negative slice": lambda k, rows: (slice(-3, -1), slice(None, -2)),
    "stride": lambda k, rows: slice(0, 4, 2),
    "stride and entry": lambda k, rows: (slice(0, 4, 2), 5),
    "empty": lambda k, rows: slice(2, 2),
    "traced row": lambda k, rows: k,
    "traced entry": lambda k, rows: (k, 1),
    "traced negative": lambda k, rows: (k - 4, -1),
    "traced entry and slice": lambda k, rows: (slice(1, 4), k),
    "int32 and int64": lambda k, rows: (k.astype(jnp.int32), k.astype(jnp.int64)),
    "unsigned": lambda k, rows: (k.astype(jnp.uint8), slice(None)),
    "rows": lambda k, rows: rows,
    "negative rows": lambda k, rows: rows - 4,
    "rows and entry": lambda k, rows: (rows, k),
    "rows and slice": lambda k, rows: (slice(1, 4), rows),
    "two arrays": lambda k, rows: (rows, rows + 1),
    "array of arrays": lambda k, rows: jnp.stack([rows, rows - 1]),
    "where a mask holds": lambda k, rows: np.nonzero(np.array([True, False, True, True])),
}


def on_refs(index, x, k, rows):
    """Read, write, swap, add, read again: all by one index."""
    r = jax.new_ref(x)
    where = index(k, rows)
    r[where] = jnp.sin(r[where]) * x[0, 0]
    old = jax.ref.swap(r, where, 2.0 * r[where] ** 2)
    jax.ref.addupdate(r, where, old * r[where])
    return r[...], r[where]


def on_arrays(index, x, k, rows):
    where = index(k, rows)
    r = x.at[where].set(jnp.sin(x[where]) * x[0, 0])
    old = r[where]
    r = r.at[where].set(2.0 * r[where] ** 2)
    r = r.at[where].add(old * r[where])
    return r, r[where]


@functools.cache
def everything(form):
    """Value, jvp, vjp and their jvp for all indices, as one program for each form."""

    def one(index):
        f = lambda x: form(index, x, K, ROWS)
        total = lambda x: sum(jnp.vdot(y, jnp.cos(y)) for y in f(x))
        return {
            "value and jvp": jax.jvp(f, (X,), (T,)),
            "grad and hvp": jax.jvp(jax.grad(total), (X,), (T,)),
            "vmap": jax.vmap(jax.grad(total))(jnp.stack([X, X + T])),
        }

    return jax.jit(lambda: {name: one(index) for name, index in INDICES.items()})()


@pytest.mark.parametrize("name", INDICES)
def test_index_as_numpy_in_every_mode(name):
    got = everything(discharged_on_refs)[name]
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12),
        got,
        everything(on_arrays)[name],
    )


def discharged_on_refs(index, x, k, rows):
    return tj.discharge(on_refs)(index, x, k, rows)


@pytest.mark.parametrize("far", [7, -9])
def test_out_of_range_as_jax(far):
    """Scalars are clamped; arrays are clamped in reads and dropped in writes."""

    def f(x, k):
        r = jax.new_ref(x)
        r[k, 0] = 5.0
        r[jnp.stack([k, k]), 1] = jnp.ones(2)
        return r[...], r[k], r[jnp.stack([k, k])]

    expected = jax.jit(f)(X, jnp.array(far))
    jax.tree.map(np.testing.assert_array_equal, jax.jit(tj.discharge(f))(X, far), expected)
    jax.tree.map(np.testing.assert_array_equal, tj.discharge(f)(X, jnp.array(far)), expected)


def test_traced_windows_of_two_sizes():
    """`ref[start : start + n]` with a traced start, with a stride, and beside an array."""
    from jax.experimental import pallas as pl

    def f(x, k):
        r = jax.new_ref(x)
        r[pl.ds(k, 2)] = r[pl.ds(0, 2)] * r[pl.ds(k, 2)]
        r[0, pl.ds(k, 2, 2)] = r[1, pl.ds(k, 2, 2)] ** 2
        r[ROWS, pl.ds(k, 3)] = r[ROWS, pl.ds(1, 3)] * 2.0
        return jnp.sum(jnp.sin(r[...]))

    def g(x, k):
        x = x.at[k : k + 2].set(x[:2] * x[k : k + 2])
        x = x.at[0, k : k + 3 : 2].set(x[1, k : k + 3 : 2] ** 2)
        x = x.at[ROWS, k : k + 3].set(x[ROWS, 1:4] * 2.0)
        return jnp.sum(jnp.sin(x))

    got = jax.jit(jax.value_and_grad(tj.discharge(f)))(X, K)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-12),
        got,
        jax.value_and_grad(g)(X, 2),
    )


def test_view_of_a_view():
    def f(x, k):
        r = jax.new_ref(x)
        view = r.at[1:4].at[k]
        view[1:3] = view[0:2] * x[0, :2]
        rows = r.at[ROWS]
        rows[0] = rows[1] ** 2
        jax.ref.addupdate(rows, 1, x[2])
        return jnp.sum(jnp.cos(r[...]))

    def g(x, k):
        x0 = x
        x = x.at[1 + k, 1:3].set(x[1 + k, :2] * x0[0, :2])
        x = x.at[3].set(x[0] ** 2)
        return jnp.sum(jnp.cos(x.at[0].add(x0[2])))

    got = jax.jit(jax.value_and_grad(tj.discharge(f)))(X, K)
    expected = jax.jit(jax.value_and_grad(g))(X, K)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), got, expected)


def test_view_that_names_an_entry_twice_adds_up_in_reverse():
    """A read of a part of a gather that repeats rows: the transpose adds for each."""

    def f(x):
        rows = jax.new_ref(x).at[jnp.array([1, 1])]
        return jnp.sum(rows[0:2, 2] * jnp.array([2.0, 3.0]))

    got = jax.jit(jax.grad(tj.discharge(f)))(X)
    np.testing.assert_array_equal(got, jnp.zeros_like(X).at[1, 2].set(5.0))


def test_repeated_entries_add_up():
    def f(x):
        r = jax.new_ref(jnp.zeros(3))
        jax.ref.addupdate(r, jnp.array([0, 2, 0, 0]), x)
        return r[...]

    np.testing.assert_allclose(
        tj.discharge(f)(X[0, :4]), [X[0, 0] + X[0, 2] + X[0, 3], 0, X[0, 1]], rtol=1e-15
    )
    np.testing.assert_array_equal(
        jax.jacrev(tj.discharge(f))(X[0, :4]), [[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]]
    )


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex128", "bfloat16", "float32", "uint8"])
def test_dtypes_are_kept(dtype):
    x = jnp.array([1, 0, 1, 1]).astype(dtype)

    def f(x, k):
        r = jax.new_ref(x)
        r[k] = r[0]
        r[-1] = r[1]
        r[jnp.array([0, 2])] = r[jnp.array([2, 1])]
        return r[...], jax.new_ref(x[0])[...]

    out, scalar = jax.jit(tj.discharge(f))(x, K)
    assert (out.dtype, scalar.dtype) == (x.dtype, x.dtype)
    np.testing.assert_array_equal(out, jnp.array([1, 0, 0, 0]).astype(dtype))


def test_complex_pairing_is_jax():
    def f(z, k):
        r = jax.new_ref(z)
        r[k] = r[0] * r[k]
        jax.ref.addupdate(r, 1, r[k] * z[3])
        return jnp.sum(jnp.abs(r[...] ** 2 + z[1]))

    def g(z, k):
        r = z.at[k].set(z[0] * z[k])
        return jnp.sum(jnp.abs(r.at[1].add(r[k] * z[3]) ** 2 + z[1]))

    z = lax.complex(X[0, :4], X[1, :4])
    np.testing.assert_allclose(
        jax.jit(jax.grad(tj.discharge(f)))(z, K), jax.jit(jax.grad(g))(z, K), rtol=1e-12
    )


@pytest.mark.parametrize("typed", [True, False])
def test_random_keys(typed):
    """A key as state: integers have no gradient, and gradients go past them."""
    keys = jax.random.split(jax.random.key(3), 2) if typed else jax.random.PRNGKey(3)

    def f(x, keys):
        r = jax.new_ref(keys)
        y = jax.new_ref(x)
        if typed:
            new = jax.random.split(r[0])
            r[0] = new[0]
            y[1] = y[0] * jax.random.normal(new[1], dtype=x.dtype)
        else:
            new = jax.random.split(r[...])
            r[...] = new[0]
            y[1] = y[0] * jax.random.normal(new[1], dtype=x.dtype)
        return y[1] ** 2, r[...]

    new = jax.random.split(keys[0] if typed else keys)
    drawn = jax.random.normal(new[1], dtype=X.dtype)
    slope, after = jax.jit(jax.grad(tj.discharge(f), has_aux=True))(X[0], keys)
    np.testing.assert_allclose(slope[0], 2 * X[0, 0] * drawn**2, rtol=1e-12)
    after = after[0] if typed else after
    data = jax.random.key_data if typed else (lambda k: k)
    np.testing.assert_array_equal(data(after), data(new[0]))


def test_nothing_at_all():
    """An array without entries."""

    def f(x):
        r = jax.new_ref(x)
        r[...] = r[...] * 2.0
        return jnp.sum(r[...])

    np.testing.assert_array_equal(jax.grad(tj.discharge(f))(jnp.zeros((0, 3))), jnp.zeros((0, 3)))


# -- what it costs -----------------------------------------------------------------------------


def recurrence(n):
    def f(x, q):
        r, q = jax.new_ref(x), jax.new_ref(q)

        def body(i, c):
            r[i + 1] = jnp.sin(r[i]) * q[i]
            return c

        lax.fori_loop(0, n - 1, body, None)
        return r[n - 1]

    return tj.discharge(f)


def full_size_work(n):
    """Operations in bodies of loops, of the compiled gradient, that touch every entry."""
    x = jnp.ones(n)
    text = jax.jit(jax.grad(recurrence(n), (0, 1))).lower(x, x).compile().as_text()
    bodies = re.findall(r"body=%?([\w.\-]+)", text)
    found = []
    for body in bodies:
        start = text.index(f"%{body} (")
        lines = text[start : text.index("\n}", start)].splitlines()
        whole = re.compile(rf"= f64\[{n}\]\S* (copy|add|broadcast|pad|select|negate)\(")
        found += [line for line in lines if whole.search(line)]
    return found, len(bodies)


def test_indexed_steps_cost_what_they_touch():
    """No operation of the size of the array in the loops of a gradient: n steps cost n."""
    work, loops = full_size_work(1231)
    assert loops >= 2
    assert bool(work) is not _compat.BARRIER_KEEPS_ORDER


def test_a_plain_array_in_the_loop_is_seen_by_this_test():
    """The same with a plain array that is indexed: JAX adds a whole array in each step."""
    n = 1231

    def f(x):
        body = lambda c, i: (jnp.sin(c) * x[i], None)
        return lax.scan(body, jnp.ones(()), jnp.arange(n))[0]

    text = jax.jit(jax.grad(f)).lower(jnp.ones(n)).compile().as_text()
    assert re.search(rf"= f64\[{n}\]\S* (copy|add|broadcast|fusion)\(", text)


def test_gradient_of_the_recurrence():
    def plain(x, q):
        c = x[0]
        for i in range(4):
            c = jnp.sin(c) * q[i]
        return c

    x, q = X[0, :5], X[1, :5]
    got = jax.jit(jax.grad(recurrence(5), (0, 1)))(x, q)
    expected = jax.jit(jax.grad(plain, (0, 1)))(x, q)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), got, expected)


def test_a_write_reads_nothing():
    """JAX's Refs swap; what was there is read only if somebody asks for it."""

    def f(x, v):
        r = jax.new_ref(x)
        r[1] = v
        return r[...]

    jaxpr = str(jax.make_jaxpr(tj.discharge(f))(X[0], 1.0))
    assert "slice" not in jaxpr.replace("dynamic_update_slice", "")
    assert "linear=read" not in jaxpr
