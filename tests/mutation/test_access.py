"""Reads and writes of parts: as JAX's Refs do them, differentiated, at the price of the part."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj

pytestmark = pytest.mark.core

X = jnp.arange(24.0).reshape(4, 6) / 7 + 0.3
T = jnp.cos(jnp.arange(24.0)).reshape(4, 6)
K = jnp.array(2)
ROWS = jnp.array([3, 0])
assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)

# NumPy's indices; `k` (= 2) and `rows` (= [3, 0]) are traced.
INDICES = [
    "...",
    "1",
    "1, 2",
    "-1, -2",
    "1:3",
    "-3:-1, :-2",
    "0:4:2",
    "0:4:2, 5",
    "2:2",
    "k",
    "k, 1",
    "k - 4, -1",
    "1:4, k",
    "k.astype('int32'), k.astype('int64')",
    "k.astype('uint8'), :",
    "rows",
    "rows - 4",
    "rows, k",
    "1:4, rows",
    "rows, rows + 1",
    "jnp.stack([rows, rows - 1])",
    "np.nonzero([True, False, True, True])",
]


def on_refs(x, where):
    """Read, write, swap, add, read again: all by one index."""
    r = jax.new_ref(x)
    r[where] = jnp.sin(r[where]) * x[0, 0]
    old = jax.ref.swap(r, where, 2.0 * r[where] ** 2)
    jax.ref.addupdate(r, where, old * r[where])
    return r[...], r[where]


def on_arrays(x, where):
    r = x.at[where].set(jnp.sin(x[where]) * x[0, 0])
    old = r[where]
    r = r.at[where].set(2.0 * r[where] ** 2)
    r = r.at[where].add(old * r[where])
    return r, r[where]


@functools.cache
def in_every_mode(form):
    """Value, jvp, vjp and their jvp for all indices, as one program for each form."""

    def one(index, k, rows):
        f = lambda x: form(x, eval(f"np.s_[{index}]", {**globals(), "k": k, "rows": rows}))
        total = lambda x: sum(jnp.vdot(y, jnp.cos(y)) for y in f(x))
        gradient = jax.grad(total)
        batch = jax.vmap(gradient)(jnp.stack([X, X + T]))
        return jax.jvp(f, (X,), (T,)), jax.jvp(gradient, (X,), (T,)), batch

    return jax.jit(lambda *given: {index: one(index, *given) for index in INDICES})(K, ROWS)


@pytest.mark.parametrize("index", INDICES)
def test_an_index_means_what_it_means_to_numpy(index):
    got = in_every_mode(discharged_on_refs)[index]
    jax.tree.map(assert_close, got, in_every_mode(on_arrays)[index])


def discharged_on_refs(x, where):
    return tj.refs.discharge(on_refs)(x, where)


@pytest.mark.parametrize("far", [7, -9])
def test_out_of_range_as_jax(far):
    """Scalars are clamped; arrays are clamped in reads and dropped in writes."""

    def f(x, k):
        r = jax.new_ref(x)
        r[k, 0] = 5.0
        r[jnp.stack([k, k]), 1] = jnp.ones(2)
        return r[...], r[k], r[jnp.stack([k, k])]

    expected = jax.jit(f)(X, jnp.array(far))
    jax.tree.map(np.testing.assert_array_equal, jax.jit(tj.refs.discharge(f))(X, far), expected)
    jax.tree.map(np.testing.assert_array_equal, tj.refs.discharge(f)(X, jnp.array(far)), expected)


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

    got = jax.jit(jax.value_and_grad(tj.refs.discharge(f)))(X, K)
    jax.tree.map(assert_close, got, jax.value_and_grad(g)(X, 2))


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

    got = jax.jit(jax.value_and_grad(tj.refs.discharge(f)))(X, K)
    jax.tree.map(assert_close, got, jax.jit(jax.value_and_grad(g))(X, K))


def test_entries_that_are_named_twice_add_up():
    """In an update, and in reverse mode of a read of a part of a gather."""

    def update(x):
        r = jax.new_ref(jnp.zeros(3))
        jax.ref.addupdate(r, jnp.array([0, 2, 0, 0]), x)
        return r[...]

    def gather(x):
        rows = jax.new_ref(x).at[jnp.array([1, 1])]
        return jnp.sum(rows[0:2, 2] * jnp.array([2.0, 3.0]))

    assert_close(tj.refs.discharge(update)(X[0, :4]), [X[0, 0] + X[0, 2] + X[0, 3], 0, X[0, 1]])
    rows = jax.jacrev(tj.refs.discharge(update))(X[0, :4])
    np.testing.assert_array_equal(rows, [[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]])
    got = jax.jit(jax.grad(tj.refs.discharge(gather)))(X)
    np.testing.assert_array_equal(got, jnp.zeros_like(X).at[1, 2].set(5.0))


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex128", "bfloat16", "float32", "uint8"])
def test_dtypes_are_kept(dtype):
    x = jnp.array([1, 0, 1, 1]).astype(dtype)

    def f(x, k):
        r = jax.new_ref(x)
        r[k] = r[0]
        r[-1] = r[1]
        r[jnp.array([0, 2])] = r[jnp.array([2, 1])]
        return r[...], jax.new_ref(x[0])[...]

    out, scalar = jax.jit(tj.refs.discharge(f))(x, K)
    assert (out.dtype, scalar.dtype) == (x.dtype, x.dtype)
    np.testing.assert_array_equal(out, jnp.array([1, 0, 0, 0]).astype(dtype))


def test_random_keys_are_read_and_written_by_index():
    """A key as state: integers have no gradient, and gradients go past them."""

    def f(x, keys):
        r, y = jax.new_ref(keys), jax.new_ref(x)
        r[0], drawn = jax.random.split(r[0])
        y[1] = y[0] * jax.random.normal(drawn, dtype=x.dtype)
        return y[1] ** 2, r[...]

    keys = jax.random.split(jax.random.key(3), 2)
    new, drawn = jax.random.split(keys[0])
    slope, after = jax.jit(jax.grad(tj.refs.discharge(f), has_aux=True))(X[0], keys)
    assert_close(slope[0], 2 * X[0, 0] * jax.random.normal(drawn, dtype=X.dtype) ** 2)
    np.testing.assert_array_equal(*map(jax.random.key_data, (after, jnp.stack([new, keys[1]]))))


# -- what it costs -----------------------------------------------------------------------------


def compiled_gradient(f, *args):
    return jax.jit(jax.grad(f, tuple(range(len(args))))).lower(*args).compile().as_text()


def span(i):
    from jax.experimental import pallas as pl

    return pl.ds(i, 3)


STEPS = {
    "to the next": lambda r, q, i: r.__setitem__(i + 1, jnp.sin(r[i]) * q[i]),
    "in place": lambda r, q, i: r.__setitem__(i, jnp.sin(r[i])),
    "increment": lambda r, q, i: r.__setitem__(i, r[i] + q[i] * r[i - 1]),
    "histogram": lambda r, q, i: r.__setitem__(i * 7 % 1231, r[i * 7 % 1231] + q[i] ** 2),
    "three times": lambda r, q, i: r.__setitem__(i, r[i] * r[i] * r[i + 1] * q[i]),
    "windows": lambda r, q, i: r.__setitem__(span(i), r[span(i)] * jnp.sin(r[span(i + 1)])),
    "update": lambda r, q, i: jax.ref.addupdate(r, i, r[i] * q[i]),
    "quantity": lambda r, q, i: r.__setitem__(i, r[i] * q[i]),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", STEPS)
def test_indexed_steps_cost_what_they_touch(name, order):
    """No operation of the size of the array in the loops of a gradient: n steps cost n."""
    n = 1231

    @tj.refs.discharge
    def recurrence(x, q):
        r, q = tj.new_ref(x * tj.units.m if name == "quantity" else x), jax.new_ref(q)
        lax.fori_loop(1, n - 4, lambda i, _: STEPS[name](r, q, i), None)
        return jnp.sum(jnp.sin(jax.tree.leaves(r[...])[0]))

    moved = lambda x, q: jax.jvp(recurrence, (x, q), (q, x))[1]
    text = compiled_gradient(recurrence if order == 1 else moved, jnp.ones(n), jnp.ones(n))
    whole = re.compile(rf"= f64\[{n}\]\S* (copy|add|broadcast|pad|select|negate)\(")
    bodies, work = re.findall(r"body=%?([\w.\-]+)", text), []
    for body in bodies:
        start = text.index(f"%{body} (")
        work += filter(whole.search, text[start : text.index("\n}", start)].splitlines())
    assert len(bodies) >= 2
    assert bool(work) is (jax.__version_info__ < (0, 12))  # where a barrier keeps no order


def test_a_plain_array_in_the_loop_costs_its_size_in_each_step():
    """The same with a plain array that is indexed, for comparison: JAX adds a whole array."""
    n = 1231

    def f(x):
        body = lambda c, i: (jnp.sin(c) * x[i], None)
        return lax.scan(body, jnp.ones(()), jnp.arange(n))[0]

    text = compiled_gradient(f, jnp.ones(n))
    assert re.search(rf"= f64\[{n}\]\S* (copy|add|broadcast|fusion)\(", text)


def test_a_write_reads_nothing():
    """JAX's Refs swap; what was there is read only if somebody asks for it."""

    def f(x, v):
        r = jax.new_ref(x)
        r[1] = v
        return r[...]

    jaxpr = str(jax.make_jaxpr(tj.refs.discharge(f))(X[0], 1.0))
    assert "slice" not in jaxpr.replace("dynamic_update_slice", "")
    assert "linear=read" not in jaxpr
