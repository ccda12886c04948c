"""NumPy's own functions on quantities: lists, the order of parameters, what is written into."""

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from quantities import assert_quantity
from tanjax.units import km, m, s

Q = np.array([1.0, 2.0, 3.0]) * m
D, DENSE = tj.Diagonal(jnp.array([1.0, 2.0, 3.0])), np.diag([1.0, 2.0, 3.0])
OTHER = np.arange(9.0).reshape(3, 3)
PERCENT = tj.unit("percent")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: np.take(Q, [0, 1]), [1.0, 2.0]),
        (lambda: np.where([True, False, True], Q, 1.0 * km), [1.0, 1000.0, 3.0]),
        (lambda: np.delete(Q, [0]), [2.0, 3.0]),
        (lambda: np.repeat(Q, [1, 2, 1]), [1.0, 2.0, 2.0, 3.0]),
        (lambda: np.average(Q, weights=[1.0, 1.0, 2.0]), 2.25),
        (lambda: np.percentile(Q, [25.0, 75.0]), [1.5, 2.5]),
        (lambda: np.dot([1.0, 1.0, 1.0], Q), 6.0),
        (lambda: np.insert(Q, [1], 5.0 * m), [1.0, 5.0, 2.0, 3.0]),
        (lambda: np.sum(Q, where=[True, False, True]), 4.0),
        (lambda: np.gradient([1.0, 4.0, 9.0] * m), [3.0, 4.0, 5.0]),
        (lambda: np.interp([0.5, 1.5], [0.0, 1.0, 2.0], Q), [1.5, 2.5]),
        (lambda: np.compress([True, False, True], Q), [1.0, 3.0]),
        (lambda: np.maximum(Q, [1.0 * m, 5.0 * m, 1.0 * m]), [1.0, 5.0, 3.0]),
        (lambda: np.multiply(Q, [1.0, 2.0, 3.0]), [1.0, 4.0, 9.0]),
        (lambda: Q * [1.0, 2.0, 3.0], [1.0, 4.0, 9.0]),
        (lambda: [1.0, 2.0, 3.0] * Q, [1.0, 4.0, 9.0]),
        (lambda: Q / [1.0, 2.0, 4.0], [1.0, 1.0, 0.75]),
        (lambda: Q - [1.0 * m, 1.0 * km, 0.0 * m], [0.0, -998.0, 3.0]),
        (lambda: Q @ [1.0, 1.0, 1.0], 6.0),
        (lambda: np.clip(Q, a_min=2.0 * m, a_max=2500.0 * tj.unit("mm")), [2.0, 2.0, 2.5]),
        (lambda: np.clip(a=Q, a_min=0.002 * km, a_max=None), [2.0, 2.0, 3.0]),
    ],
)
def test_lists_are_arrays_where_numpy_takes_them_for_some(call, expected):
    assert_quantity(call(), "m", expected)


def test_the_order_of_parameters_is_that_of_numpy():
    x = np.array([1.0, 2.0, 2.0, 3.0])
    counts, edges = np.histogram(x * m, 2, None, True)
    expected = np.histogram(x, 2, None, True)
    assert_quantity(counts, m**-1, expected[0])
    assert_quantity(edges, "m", expected[1])
    counts, _ = np.histogram(x * m, 2, None, None, x * s)
    assert_quantity(counts, "s", np.histogram(x, 2, None, None, x)[0])
    counts, edges = np.histogramdd((x * m, x * s), 2)
    np.testing.assert_array_equal(counts, np.histogramdd((x, x), 2)[0])
    assert [e.unit for e in edges] == [m, s]


def test_one_triangle_is_read_as_numpy_does():
    b = np.array([[5.0, 7.0], [2.0, 2.0]])
    for triangle in ("L", "U"):
        got = np.linalg.eigvalsh(b * m, triangle)
        np.testing.assert_allclose(got.to_value(m), np.linalg.eigvalsh(b, triangle), atol=1e-5)
        got = np.linalg.eigh(b * m, triangle).eigenvalues
        np.testing.assert_allclose(got.to_value(m), np.linalg.eigh(b, triangle)[0], atol=1e-5)
    got = np.linalg.cholesky(b * m**2)
    np.testing.assert_allclose(got.to_value(m), np.linalg.cholesky(b), atol=1e-5)


def test_functions_that_say_nothing_about_units_are_refused():
    doubler = np.frompyfunc(lambda x: 2 * x, 1, 1)
    add = np.frompyfunc(lambda x, y: x - y, 2, 1)
    for call in (lambda: doubler(Q), lambda: add(Q, Q), lambda: np.add.reduceat(Q, [0, 1])):
        with pytest.raises(tj.UnitError, match="says nothing about units"):
            call()
    with pytest.raises(tj.UnitError, match=r"unravel_index.*says nothing"):
        np.unravel_index(Q, (3, 3))
    for call in (lambda: np.busday_count(D, D), lambda: np.frompyfunc(abs, 1, 1)(D)):
        with pytest.raises(TypeError, match=r"no implementation|NotImplemented"):
            call()
    assert np.can_cast(1.0 * m, float)
    assert not np.can_cast(Q, int)


def test_arrays_of_numpy_that_are_written_into():
    a, b, c = np.arange(3.0), np.arange(3.0), np.arange(3.0)
    a *= m
    assert_quantity(a, "m", [0.0, 1.0, 2.0])
    b /= m
    assert_quantity(b, m**-1, [0.0, 1.0, 2.0])
    c += Q / m
    np.testing.assert_array_equal(c, [1.0, 3.0, 5.0])
    assert type(c) is np.ndarray
    c *= Q / km
    np.testing.assert_allclose(c, [1e-3, 6e-3, 15e-3])
    with pytest.raises(tj.UnitError, match=r"multiply.*cannot take a result in m[\s\S]*a = a \+ q"):
        c *= Q
    with pytest.raises(tj.UnitError):
        np.add(Q, Q, out=c)
    x = OTHER.copy()
    with tj.densify("allow"):
        x += D
        np.multiply(x, D, out=x)
    np.testing.assert_allclose(x, (OTHER + DENSE) * DENSE)


def test_units_beside_numpy():
    x = np.arange(3.0)
    assert_quantity(x * m, "m", x)
    assert_quantity(np.float64(2.0) / m, m**-1, 2.0)
    assert np.multiply(m, km) is m * km
    assert not np.any(x == m)
    assert np.all(x != m)
    with pytest.raises(TypeError):
        x + m


def test_pure_numbers_where_plain_ones_are_wanted():
    q = np.arange(5.0) * m
    assert_quantity(np.percentile(q, 25.0 * PERCENT), "m", 1.0)
    assert_quantity(np.percentile(q, 0.25 * m / m), "m", 1.0)
    assert_quantity(np.nanpercentile(q, [25.0, 50.0] * PERCENT), "m", [1.0, 2.0])
    assert_quantity(np.quantile(q, 25.0 * PERCENT), "m", 1.0)
    assert_quantity(np.ldexp(3.0 * m, tj.Quantity(jnp.int32(2), "1")), "m", 12.0)
    with pytest.raises(tj.UnitError, match="percentile: `q`"):
        np.percentile(q, 25.0 * m)


@pytest.mark.parametrize("unit", ["m", "km", "mm"])
def test_rank_does_not_depend_on_the_prefix(unit):
    """JAX takes `rtol` for an absolute tolerance."""
    a = np.diag([10.0, 5.0, 0.5])
    assert tnp.linalg.matrix_rank((a * m).to(unit), rtol=0.3) == 2
    stack = np.stack([a, np.eye(3)])
    ranks = tnp.linalg.matrix_rank((stack * m).to(unit), rtol=np.array([0.3, 0.6]))
    np.testing.assert_array_equal(ranks, [2, 3])
    assert tnp.linalg.matrix_rank((a * m).to(unit)) == 3
    assert tnp.linalg.matrix_rank((a * m).to(unit), tol=600.0 * tj.unit("cm")) == 1


def test_interp_right_after_interp_left():
    """JAX compiles one program for both, and the value on the left comes out on the right."""
    x, xp, fp = jnp.array([-1.0, 1.0, 4.0]) * m, jnp.arange(4.0) * m, jnp.arange(4.0) * 5.0 * s
    assert_quantity(tnp.interp(x, xp, fp, left=-9.0 * s), "s", [-9.0, 5.0, 15.0])
    assert_quantity(tnp.interp(x, xp, fp, right=9.0 * s), "s", [0.0, 5.0, 9.0])
    assert_quantity(tnp.interp(x, xp, fp, left=1.0 * s, right=2.0 * s), "s", [1.0, 5.0, 2.0])
    got = tnp.interp(x, xp, fp, left="extrapolate", right=9.0 * s)
    assert_quantity(got, "s", [-5.0, 5.0, 9.0])


@pytest.mark.parametrize("unit", ["km / m", "deg", "percent"])
def test_powers_of_ratios_keep_their_units(unit):
    """As products do: nothing is converted before it must be."""
    r = 1.5 * tj.unit(unit)
    for power in (2, 3, -1, 0.5, 2.0, np.float32(2.0), jnp.float32(2.0), 0):
        got = r**power
        assert got.unit == tj.unit(unit) ** float(power)
        assert float(got.value) == pytest.approx(1.5 ** float(power), rel=1e-6)
    assert (r**2).unit is (r * r).unit is tnp.square(r).unit
    assert r**2 == r * r


def test_powers_that_need_a_number_convert_ratios_and_refuse_units():
    r = 1.5 * km / (3.0 * m)
    assert_quantity(2.0 ** (2.0 * PERCENT), "1", 2.0**0.02)
    assert_quantity(r ** jnp.array([1.0, 2.0]), "1", [500.0, 250000.0])
    assert float(r**np.pi) == pytest.approx(500.0**np.pi, rel=1e-5)
    for call in (lambda: m ** jnp.ones(2), lambda: (2.0 * m) ** jnp.ones(2)):
        with pytest.raises(tj.UnitError, match=r"\bm\b"):
            call()


def test_outer_ufuncs():
    a, b = np.asarray([1.0, 2.0]), np.asarray([3.0, 4.0, 5.0])
    product = np.multiply.outer(a * m, b * km)
    np.testing.assert_allclose(product.to_value("m2"), 1000 * np.multiply.outer(a, b))
    total = np.add.outer(a * m, b * km)
    np.testing.assert_allclose(total.to_value("m"), np.add.outer(a, 1000 * b))
    with pytest.raises(tj.UnitError):
        np.add.outer(a * m, b * s)


# -- structured arrays -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        np.mean,
        np.exp,
        np.tril,
        np.ravel,
        np.diag,
        lambda a: np.mean(a, axis=0),
        lambda a: np.std(a, axis=1, keepdims=True),
        lambda a: np.power(a, 2),
        lambda a: np.power(2.0, a),
        lambda a: np.clip(a, a_min=0.0, a_max=1.5),
        lambda a: np.where(OTHER > 3, a, OTHER),
        lambda a: np.vdot(a, OTHER),
        lambda a: np.einsum("ij,jk->ik", a, OTHER),
        lambda a: np.maximum(a, OTHER),
        lambda a: np.concatenate([a, OTHER]),
        lambda a: np.add.reduce(a),
        lambda a: np.multiply.outer(OTHER, a),
        lambda a: np.add.accumulate(a, axis=1),
        lambda a: np.fft.fft(a),
        lambda a: np.linalg.matrix_rank(a),
        lambda a: np.linalg.multi_dot([a, OTHER, a]),
        lambda a: np.greater(OTHER, a),
        lambda a: a < OTHER,
        lambda a: np.allclose(a, a),
        lambda a: abs(-a) ** 3,
    ],
)
def test_functions_of_structured_arrays_are_those_of_the_dense_ones(call):
    with tj.densify("allow"):
        found, expected = tj.destructure(call(D)), call(DENSE)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert np.shape(found) == np.shape(expected)


def test_functions_that_need_no_dense_array_keep_the_type():
    with tj.densify("error"):
        for f in (np.tanh, np.sqrt, np.abs, np.square, np.real, lambda a: np.power(a, 1.5)):
            assert isinstance(f(D), tj.Diagonal)
        with pytest.raises(tj.NoRuleError, match="exp: Diagonal"):
            np.exp(D)
