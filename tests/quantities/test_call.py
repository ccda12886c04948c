"""A call that is kept gives what the first call gave, and refuses what the first call refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from quantities import assert_same

pytestmark = pytest.mark.core

m, km, s, deg, rad = (tj.unit(name) for name in ("m", "km", "s", "deg", "rad"))
V, W = np.asarray([1.0, -2.0, 4.0]), np.asarray([3.0, 0.5, -1.0])
MASK = jnp.asarray([True, False, True])

CALLS = {
    "one unit": lambda x, y: tnp.add(x, y),
    "product": lambda x, y: tnp.multiply(x, y),
    "comparison": lambda x, y: tnp.less(x, y),
    "condition": lambda x, y: tnp.where(MASK, x, y),
    "list": lambda x, y: tnp.concatenate([x, y]),
    "list and flag": lambda x, y: tnp.stack((x, y), axis=1),
    "keywords": lambda x, y: tnp.clip(x, min=-1.0 * m, max=y),
    "literal zero": lambda x, y: tnp.maximum(x, 0),
    "angle": lambda x, y: tnp.sin(x / y),
    "indices": lambda x, y: tnp.argsort(x),
    "shape": lambda x, y: tnp.reshape(y, (3, 1)),
    "several": lambda x, y: tnp.linalg.svd(jnp.outer(V, W) * x.unit),
    "look at numbers": lambda x, y: tnp.union1d(x, y),
    "operator": lambda x, y: x % y,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_later_calls_agree_with_the_first(call):
    """For every pair of prefixes, in changing order; the reference is converted by hand."""
    for unit, other in itertools.product((m, km), repeat=2):
        x, y = jnp.asarray(V) * unit, jnp.asarray(W) * other
        converted = call(x, y.to(unit))
        for _ in range(3):
            assert_si_close(call(x, y), converted)


def assert_si_close(got, expected):
    """The same quantities, though perhaps in other prefixes."""
    got, expected = (jax.tree.leaves(v, is_leaf=tj.rules.is_structured) for v in (got, expected))
    for g, e in zip(got, expected, strict=True):
        assert (type(g) is tj.Quantity) == (type(e) is tj.Quantity)
        if type(g) is tj.Quantity:
            g, e = g.to_value(e.unit), e.value
        np.testing.assert_allclose(g, e, rtol=1e-12)


def test_refused_calls_are_refused_again():
    """Between refusals good calls with other units are planned."""
    x = jnp.asarray(V) * m
    for _ in range(3):
        with pytest.raises(tj.UnitError, match="add"):
            tnp.add(x, jnp.asarray(W) * s)
        with pytest.raises(tj.UnitError, match="plain number"):
            tnp.add(x, 1.0)
        with pytest.raises(tj.UnitError, match="plain number"):
            tnp.add(x, jnp.asarray(W))
        assert_same(tnp.add(x, 0), x)
        assert_same(tnp.add(x, x), 2.0 * x)


def test_a_plan_holds_no_values():
    """The same pattern with other numbers, shapes and dtypes."""
    assert_same(tnp.add(1.0 * m, 2.0 * km), 2001.0 * m)
    assert_same(tnp.add(3.0 * m, 4.0 * km), 4003.0 * m)
    got = tnp.add(jnp.ones((2, 2), jnp.float32) * m, jnp.ones(2, jnp.float32) * km)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got.value, np.full((2, 2), 1001.0))
    got = tnp.add(jnp.asarray([1, 2]) * m, jnp.asarray([1, 1]) * m)
    assert got.dtype == jnp.asarray(1).dtype


def test_literal_zero_and_other_numbers_are_different_patterns():
    x = jnp.asarray(V) * m
    assert_same(tnp.maximum(x, 0), tnp.maximum(x, 0.0 * m))
    with pytest.raises(tj.UnitError):
        tnp.maximum(x, 1)
    assert_same(tnp.maximum(x, 0), tnp.maximum(x, 0.0 * m))


def test_numbers_are_looked_at_in_every_call():
    """1 nm is no normal number of metres in float16; float64 with the same units was planned."""
    nm = tj.unit("nm")
    for _ in range(2):
        assert_si_close(tnp.add(1.0 * m, jnp.asarray(1e9) * nm), 2.0 * m)
        assert tnp.add(jnp.float16(1.0) * m, jnp.float16(1.0) * nm).value == 1.0
        total = tnp.add(jnp.float16(0.0) * m, jnp.float16(1.0) * nm)
        np.testing.assert_allclose(float(total.stored) * 2.0**total.scale, 1e-9, rtol=1e-3)


def test_units_of_one_value_need_no_conversion():
    """Newton and kg m / s2 are one unit under two names, radian is 1: nothing is multiplied."""
    x, y = jnp.asarray([1, 2]) * tj.unit("N"), jnp.asarray([3, 4]) * tj.unit("kg m / s2")
    for _ in range(2):
        assert tnp.add(x, y).dtype == x.dtype  # a conversion makes floats of integers
        program = jax.make_jaxpr(lambda a: tnp.sin(a * rad).value)(V)
        assert [e.primitive.name for e in program.eqns] == ["sin"]


@pytest.mark.parametrize("wrap", [jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))])
def test_tracers_and_arrays_share_a_call(wrap):
    x, y = jnp.asarray(V) * m, jnp.asarray(W) * km
    f = lambda a, b: tnp.hypot(a, b)
    eager = [f(x, y) for _ in range(2)][-1]
    assert_si_close(wrap(f)(x, y), eager)
    assert_si_close(f(x, y), eager)


def test_structured_arrays_after_dense_ones():
    a, b = jnp.diag(jnp.asarray([2.0, 4.0])) * m, jnp.ones(2) * s
    dense = [tnp.linalg.solve(a, b) for _ in range(2)][-1]
    structured = tnp.linalg.solve(tj.Diagonal(jnp.asarray([2.0, 4.0])) * m, b)
    assert_si_close(structured, dense)


def test_mixed_prefixes_without_jit():
    """`jax.disable_jit` runs the compiled conversion step by step."""
    with jax.disable_jit():
        assert_si_close(tnp.add(jnp.asarray(V) * m, jnp.asarray(W) * km), (V + 1000 * W) * m)


def test_kept_calls_are_bounded():
    """Lists of ever other lengths do not fill the memory."""
    kept = tnp.concatenate._calls
    kept.update({("filler", i): None for i in range(1024)})
    assert_same(tnp.concatenate([jnp.ones(1) * m] * 9), jnp.ones(9) * m)
    assert len(kept) < 10
