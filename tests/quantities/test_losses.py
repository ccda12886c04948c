"""Where quantities of far-apart magnitudes are brought together, what is lost is said."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.lax as tlax
import tanjax.numpy as tnp
from tanjax.errors import ScaleWarning
from tanjax.quantities import is_quantity

pytestmark = pytest.mark.core

kg = tj.unit("kg")
DTYPES = ("float16", "bfloat16", "float32")
FIRST, SECOND, BOTH = np.array([True, False]), np.array([False, True]), np.array([True, True])
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def far_apart(dtype, unit=kg):
    """A number, another that is nothing beside it, and an array of two of the first."""
    sun = tj.Quantity(jnp.asarray(1.5, dtype), unit, 300)
    brick = tj.Quantity(jnp.asarray(3.0, dtype), unit)
    return sun, brick, tnp.stack([sun, sun])


def numbers(tree):
    """Those of quantities in float64, at whatever exponents they are."""
    wide = lambda x: np.ldexp(np.asarray(x.stored, np.float64), x.scale) if is_quantity(x) else x
    return jax.tree.map(wide, tree, is_leaf=is_quantity)


LOSSY = {
    "stack": lambda s, b, two: tnp.stack([s, b]),
    "where": lambda s, b, two: tnp.where(FIRST, s, b),
    "concatenate": lambda s, b, two: tnp.concatenate([two, tnp.stack([b])]),
    "append": lambda s, b, two: tnp.append(two, b),
    "insert": lambda s, b, two: tnp.insert(two, 0, b),
    "select": lambda s, b, two: tnp.select([FIRST], [two], b),
    "array": lambda s, b, two: tnp.array([s, b]),
    "block": lambda s, b, two: tnp.block([two, tnp.stack([b])]),
    "pad": lambda s, b, two: tnp.pad(two, 1, constant_values=b),
    "minimum": lambda s, b, two: tnp.minimum(s, b),
    "clip": lambda s, b, two: tnp.clip(two, 0.0 * b, b),
    "subtract": lambda s, b, two: tnp.stack([s, 0 * s]) - b,
    "add": lambda s, b, two: tnp.stack([s, 0 * s]) + tnp.stack([b, b]),
    "at.set": lambda s, b, two: two.at[1].set(b),
    "at.min": lambda s, b, two: two.at[1].min(b),
    "at.add": lambda s, b, two: (0 * two).at[0].set(s).at[1].add(b),
    "less": lambda s, b, two: tnp.stack([s, 0 * s]) < b,
    "equal": lambda s, b, two: tnp.stack([s, 0 * s]) == b,
    "union1d": lambda s, b, two: tnp.union1d(two, tnp.stack([b])),
    "searchsorted": lambda s, b, two: tnp.searchsorted(tnp.stack([0 * s, s]), b),
    "linspace": lambda s, b, two: tnp.linspace(b, s, 3),
    "piecewise": lambda s, b, two: tnp.piecewise(two, [FIRST], [lambda x: x, b]),
    "np.stack": lambda s, b, two: np.stack([s, b]),
    "np.where": lambda s, b, two: np.where(FIRST, s, b),
    "lax.select": lambda s, b, two: tlax.select(FIRST, two, tnp.stack([b, b])),
    "lax.dynamic_update_slice": lambda s, b, two: tlax.dynamic_update_slice(
        two, tnp.stack([b]), (0,)
    ),
    "a python number": lambda s, b, two: tnp.where(FIRST, s / kg, 5.0),
    "an array": lambda s, b, two: tnp.where(FIRST, s / kg, jnp.asarray([5, 5], s.dtype)),
    "at.set of a number": lambda s, b, two: (two / kg).at[0].set(5.0),
}
HARMLESS = {
    "where": lambda s, b, two: tnp.where(BOTH, s, b),
    "maximum": lambda s, b, two: tnp.maximum(two, b),
    "clip": lambda s, b, two: tnp.clip(two, b, s),
    "add": lambda s, b, two: s + b,
    "subtract": lambda s, b, two: b - two,
    "hypot": lambda s, b, two: tnp.hypot(s, b),
    "less": lambda s, b, two: s < b,
    "isclose": lambda s, b, two: tnp.isclose(s, b),
    "mean": lambda s, b, two: tnp.mean(two) + b,
    "at.add": lambda s, b, two: two.at[1].add(b),
    "at.max": lambda s, b, two: two.at[1].max(b),
    "zeros": lambda s, b, two: tnp.stack([s, 0 * b]),
    "literal zero": lambda s, b, two: tnp.where(FIRST, s, 0.0),
    "at.set of zero": lambda s, b, two: (two / kg).at[0].set(0),
    "nan": lambda s, b, two: tnp.stack([s, tj.Quantity(jnp.asarray(jnp.nan, s.dtype), kg)]),
}


@every_dtype
@pytest.mark.parametrize("name", LOSSY)
def test_a_loss_is_said(name, dtype):
    given = far_apart(dtype)
    with pytest.warns(
        ScaleWarning, match=rf"(?s){dtype}.*2\^1 to 2\^301|2\^2 to 2\^3.*Hint"
    ) as seen:
        LOSSY[name](*given)
    assert all(w.filename == __file__ for w in seen)


@every_dtype
@pytest.mark.parametrize("name", HARMLESS)
def test_lost_addend_that_does_not_matter_gives_no_warning(name, dtype):
    """As in plain floating point, where a small addend leaves a large one as it is."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        HARMLESS[name](*far_apart(dtype))
    assert not seen


@every_dtype
def test_numbers_that_fit_together_are_kept(dtype):
    span = 24 if dtype == "float16" else 240
    low, high = (tj.Quantity(jnp.asarray(1.5, dtype), kg, e) for e in (300, 300 + span))
    for q in (
        tnp.stack([low, high]),
        tnp.where(FIRST, low, high),
        tnp.stack([high, high]).at[0].set(low),
    ):
        small, large = np.asarray(q.stored).astype(float).tolist()
        assert large == small * 2.0**span
        assert small * 2.0 ** (q.scale - 300) == 1.5


def test_a_loss_is_seen_where_one_of_the_results_has_an_exponent():
    """The larger of two negative numbers is the smaller one, of which one digit is left."""
    small, large = (tj.Quantity(jnp.float16(-48800.0), kg, e) for e in (11, 48))
    with pytest.warns(ScaleWarning, match="maximum"):
        tnp.maximum(large, small)


def test_digits_of_subnormal_numbers():
    """float16 computes with them; those that are exact are kept, others lose digits."""
    top = tj.Quantity(jnp.float16(2.0**15), kg, 100)
    exact, inexact = (tj.Quantity(jnp.float16(x), kg, 83) for x in (1.0, 1.0 + 2.0**-6))
    assert float(tnp.stack([top, exact])[1] / exact) == 1.0
    with pytest.warns(ScaleWarning, match="stack"):
        tnp.stack([top, inexact])


@every_dtype
def test_complex_numbers_and_other_units(dtype):
    sun, _, _ = far_apart(dtype)
    with pytest.warns(ScaleWarning, match="stack"):
        tnp.stack([sun, tj.Quantity(jnp.asarray(3.0, dtype), "g")])
    if dtype == "float32":
        large = tj.Quantity(jnp.complex64(1 + 2j), kg, 300)
        with pytest.warns(ScaleWarning, match="stack"):
            tnp.stack([large, tj.Quantity(jnp.complex64(3j), kg)])


def test_another_dtype():
    wide = jnp.float32([1e-10, 1e10]) * kg
    with pytest.warns(ScaleWarning, match=r"(?s)astype.*float16"):
        narrow = wide.astype("float16")
    np.testing.assert_allclose(float(narrow[1] / (1e5 * kg)) * 1e5, 1e10, rtol=1e-3)
    kept = (jnp.float32([1e-3, 1e5]) * kg).astype("float16")
    np.testing.assert_allclose(float(kept[1] / (1e5 * kg)), 1.0, rtol=1e-3)
    np.testing.assert_allclose(float(kept[0] / kg), 1e-3, rtol=1e-3)


def test_a_trace_says_nothing():
    """Nobody knows the numbers there."""
    sun, brick, _ = far_apart("float16")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        jax.jit(lambda s, b: tnp.stack([s, b]))(sun, brick)
    assert not seen


@pytest.mark.parametrize("name", sorted((LOSSY | HARMLESS).keys() - {"union1d"}))
def test_constants_beside_what_is_traced(name):
    """Nobody knows whether a lost constant matters: the numbers are those without a trace."""
    sun, brick, two = far_apart("float16")
    call = (LOSSY | HARMLESS)[name]
    by_large, by_small = lambda s, t: call(s, brick, t), lambda b: call(sun, b, two)
    pairs = jax.tree.map(lambda x: jnp.stack([x, x]), (sun, two))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        expected = call(sun, brick, two)
        found = (
            jax.jit(by_large)(sun, two),
            jax.jit(by_small)(brick),
            jax.jvp(by_large, (sun, two), (sun, two))[0],
            jax.tree.map(lambda x: x[0], jax.vmap(by_large)(*pairs)),
        )
    for got in found:
        jax.tree.map(np.testing.assert_array_equal, numbers(got), numbers(expected))


@pytest.mark.parametrize("name", ["square", "outer", "kron", "einsum"])
def test_functions_whose_results_no_exponent_holds(name):
    """As products of two quantities say it; those in range say nothing."""
    call = getattr(tnp, name)
    given = 1 if name == "square" else 2
    first = ("i,j->ij",) if name == "einsum" else ()
    far = jnp.float16([6e4, 1e-4]) * kg
    with pytest.warns(ScaleWarning, match=rf"{name}: .*float16"):
        call(*first, *[far] * given)
    near = jnp.float16([6e4, 6e2]) * kg
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(*first, *[near] * given)
