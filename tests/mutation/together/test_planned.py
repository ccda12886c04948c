"""`tj.jit` sees through Refs: what leaves its range inside, or in memory, comes out right.

Every result is compared with the same program in float64, whose numbers fit.
"""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from tanjax.units import m

pytestmark = pytest.mark.core

BIG = 1e25


def x32(*values):
    return jnp.asarray(values, jnp.float32)


def in_double(f, *args):
    """The results of plain JAX in float64."""
    return jax.jit(f)(*jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), args))


def assert_close(got, want):
    want = np.asarray(want) if isinstance(want, list) else want
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(x, np.float64), y, rtol=3e-6)


def rescaled(x, a):
    """Memory that holds `x a²` between a write and the next ones."""
    r = jax.new_ref(x)
    r[...] = r[...] * a
    r[0] = r[0] * a

    def divide(i, carry):
        r[i] = r[i] / a
        return carry

    lax.fori_loop(0, x.size, divide, None)
    r[0] = r[0] / a
    return r[...] + x[::-1]


@tj.inplace(mutates="x")
def there_and_back(x, a):
    x[...] = x[...] * a * a
    x[0] = x[0] / a
    x[...] = x[...] / a
    x[1:] = x[1:] / a
    return jnp.sum(x[...])


def is_planned(compiled):
    return [not plan.identity for plan in compiled.plans]


@pytest.mark.parametrize(
    "function", [tj.refs.discharge(rescaled), rescaled], ids=["discharged", "refs"]
)
def test_refs_inside(function):
    """Also where JAX's own program has Refs; ordinary numbers run JAX's own program."""
    compiled, (x, a) = tj.jit(function), (x32(0.3, 0.7), jnp.float32(1.1))
    np.testing.assert_array_equal(compiled(x, a), jax.jit(rescaled)(x, a))
    for x, a in ((x32(1, 2), 3.0), (x32(1e20, 2e20), BIG), (x32(1e-20, 3e-20), 1 / BIG)):
        got = compiled(x, jnp.float32(a))
        assert_close(got, in_double(rescaled, x, jnp.float32(a)))
    assert is_planned(compiled)[0] is False
    assert any(is_planned(compiled))


def test_transitions_and_their_gradients():
    exact = there_and_back.transition
    loss = lambda x, a: jnp.sum(exact(x, a).state[0] ** 2)
    for f in (exact, jax.grad(loss)):
        compiled = tj.jit(f)
        for x, a in ((x32(1, 2), BIG), (x32(1, 2), 2.0), (x32(1e-9, 2), 1 / BIG)):
            assert_close(compiled(x, jnp.float32(a)), in_double(f, x, jnp.float32(a)))
        assert any(is_planned(compiled))


def test_half_precision():
    compiled = tj.jit(there_and_back.transition)
    state, out = compiled(jnp.asarray([3.0, 5.0], jnp.float16), jnp.float16(600.0))
    np.testing.assert_allclose([*state[0], out], [3.0, 5.0, 8.0], rtol=2e-3)
    assert state[0].dtype == out.dtype == jnp.float16


# -- Refs of the caller ----------------------------------------------------------------------------


def call_on_ref(r, a):
    return there_and_back(r, a)


def test_a_ref_as_an_argument():
    """It is looked at in each call, whatever wrote to it, and holds what is right."""
    compiled, r = tj.jit(call_on_ref), jax.new_ref(x32(1, 2))
    for x, y, a in ((1, 2, 2.0), (1, 2, BIG), (3, 4, BIG), (1e-9, 2, 0.5), (1, 3, BIG)):
        r[...] = x32(x, y)
        want = in_double(there_and_back.transition, x32(x, y), jnp.float32(a))
        assert_close(compiled(r, jnp.float32(a)), want.out)
        assert_close(r[...], want.state[0])
    assert any(is_planned(compiled))
    assert not all(is_planned(compiled))


def test_results_in_memory():
    """A training state: what one call writes is what the next one reads."""

    @tj.jit
    def step(state, a):
        state["p"][...] = state["p"][...] * a * a / a / a + 1
        state["n"][...] += 1
        return state["p"][0] * 2

    state = tj.new_ref({"p": x32(1, 2), "n": jnp.int32(0)})
    outs = [float(step(state, jnp.float32(a))) for a in (1.5, BIG, 1 / BIG, 2.0)]
    np.testing.assert_allclose(outs, [4.0, 6.0, 8.0, 10.0], rtol=1e-5)
    np.testing.assert_allclose(state["p"][...], [5.0, 6.0], rtol=1e-5)
    assert int(state["n"][...]) == 4


def test_quantities_and_structured_arrays():
    @tj.jit
    def step(length, matrix, a):
        length[...] = length[...] * a * a / a
        length[0] = length[0] / a
        length[1] = length[1] / a
        matrix[...] = matrix[...] * a
        matrix[0, 1] = 2 * matrix[0, 1] / a / a
        return length[...].to_value("km")

    length = tj.new_ref(x32(1e20, 2e20) * tj.unit("m"))
    matrix = tj.new_ref(tj.Symmetric(jnp.asarray([[1.0, 2.0], [2.0, 3.0]], jnp.float32)))
    assert_close(step(length, matrix, jnp.float32(BIG)), [1e17, 2e17])
    assert length.unit == tj.unit("m")
    assert_close(length[...].to_value("m"), [1e20, 2e20])
    assert_close(matrix[...].to_dense(), np.array([[BIG, 4 / BIG], [4 / BIG, 3 * BIG]]))


def test_nothing_is_written_where_a_call_raises():
    def fails(r):
        r[...] = 2 * r[...]
        raise RuntimeError("on purpose")

    r = jax.new_ref(x32(1, 2))
    with pytest.raises(RuntimeError, match="on purpose"):
        tj.jit(fails)(r)
    np.testing.assert_array_equal(r[...], [1, 2])


# -- gradients into buffers ------------------------------------------------------------------------


def loss(w, k):
    return jnp.sum(w * k * k / k)


def test_into_buffers():
    """Numbers that leave their range on the way to a buffer that holds them."""
    w, buffer = x32(1, 2), tj.refs.zero_refs(x32(1, 2))
    add = tj.jit(lambda w, k, into: tj.value_and_grad(loss, into=into)(w, k))
    total = np.zeros(2)
    for k in (2.0, 1e30, 3e30, 0.5):
        value = add(w, jnp.float32(k), buffer)
        assert_close(value, 3 * k)
        total += k
    assert_close(buffer[...], total)
    assert any(is_planned(add))


# -- what cannot be planned ------------------------------------------------------------------------


def test_closing_over_a_ref():
    """It runs as with `jax.jit`, and says why."""
    r = jax.new_ref(x32(1, 2))

    def closes(a):
        r[...] = r[...] * a
        return r[0] + a

    compiled = tj.jit(closes)
    for expected in (4.0, 6.0):
        with pytest.warns(tj.errors.ScaleWarning, match="closes over a Ref"):
            assert float(compiled(jnp.float32(2))) == expected
    np.testing.assert_array_equal(r[...], [4, 8])


def test_the_exponent_of_a_quantity_is_free():
    """What a function of Refs returns, and its gradient, may leave the range of its dtype."""

    def f(r, w):
        r[...] = r[...] * 2.0
        square = r[...] @ r[...]
        return square * square * square / w

    of_value = lambda q, w: 64 * (q @ q) * (q @ q) * (q @ q) / w
    x, w = x32(1.5e15, 2e15) * m, jnp.float32(1e30) * m * jnp.float32(1e30)
    for compiled in (tj.jit(f), tj.jit(tj.grad(f))):
        r = tj.new_ref(x)
        got = compiled(r, w)
        assert_close(r[...].to_value(m), [3e15, 4e15])
        want = of_value(x.astype(float), w.astype(float))
        if got.shape:
            want = tj.grad(of_value)(x.astype(float), w.astype(float))
        assert_close(got.to_value(want.unit), want.to_value(want.unit))


def test_refs_with_options():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    compiled, r = tj.jit(call_on_ref, out_shardings=sharding), jax.new_ref(x32(1, 2))
    with pytest.warns(tj.errors.ScaleWarning, match="the options out_shardings it is not planned"):
        assert_close(compiled(r, jnp.float32(2)), 3.0)


def test_static_arguments():
    @functools.partial(tj.jit, static_argnames="power")
    def scaled(r, a, *, power):
        for _ in range(power):
            r[...] = r[...] * a
        for _ in range(power):
            r[...] = r[...] / a

    r = jax.new_ref(x32(1, 2))
    for power in (1, 2, 3):
        scaled(r, jnp.float32(BIG), power=power)
        assert_close(r[...], [1.0, 2.0])


def test_under_a_trace():
    """No number is known there; that is said once."""
    r = jax.new_ref(x32(1, 2))
    compiled = tj.jit(call_on_ref)
    with pytest.warns(tj.errors.ScaleWarning, match="called under a trace"):
        out = jax.jit(lambda r: compiled(r, jnp.float32(2)))(r)
    assert_close(out, 3.0)
    nested = tj.jit(lambda r, a: compiled(r, a) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r[...] = x32(1, 2)
        assert_close(nested(r, jnp.float32(BIG)), 6.0)
    assert_close(r[...], [1.0, 2.0])


def test_one_ref_twice_is_refused_by_jax():
    r = jax.new_ref(x32(1, 2))
    with pytest.raises(ValueError, match="only one reference"):
        tj.jit(lambda a, b: a[0] + b[1])(r, r)


def test_the_view_of_a_function_that_makes_refs_is_that_of_the_pure_one():
    def squares(x):
        r = jax.new_ref(x)
        r[...] = r[...] * 1e15
        return jnp.sqrt(jnp.sum(r[...] ** 2))

    x = jnp.full(3, 1e10, jnp.float32)
    view = tj.scale_graph(squares)(x)
    assert not view.plan.identity
    primitives = {node.primitive for node in view.plan.graph.walk()}
    assert not primitives & {"new_ref", "get", "swap"}
