"""Functions whose unit depends on values, shapes, flags or on other functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.lax
import tanjax.numpy as tnp
import tanjax.scipy
from quantities import assert_quantity

LENGTHS = tj.Quantity(jnp.array([1.5, 2.0, 4.0]), "m")
TIMES = tj.Quantity(jnp.array([250.0, 500.0, 1000.0]), "ms")


def assert_agree(result, expected, unit):
    """Compare a quantity with numbers in a unit."""
    assert type(result) is tj.Quantity
    assert result.unit.dimension is tj.unit(unit).dimension
    np.testing.assert_allclose(result.to_value(unit), expected, rtol=1e-12)


# -- powers and products ---------------------------------------------------------------------------


def test_exponents_are_one_known_number():
    for power, says in (
        (jnp.array([1.0, 2.0, 3.0]), "one known number"),
        (np.pi, "simple fraction"),
    ):
        with pytest.raises(tj.UnitError, match=says):
            tnp.power(LENGTHS, power)
    with pytest.raises(tj.UnitError, match="one known number"):
        jax.jit(lambda n: tnp.power(LENGTHS, n))(2.0)
    ratio = tj.Quantity(jnp.array([0.5, 2.0]), "km/m")
    exponents = tj.Quantity(jnp.array([0.001, 0.002]), "km/m")
    assert_agree(tnp.power(ratio, exponents), [500.0, 2000.0**2], "1")


def test_products_know_their_number_of_factors_without_values():
    with pytest.raises(tj.UnitError, match="nanprod"):
        tnp.nanprod(LENGTHS)
    with pytest.raises(tj.UnitError, match="prod"):
        tnp.prod(LENGTHS, where=jnp.array([True, False, True]))
    lengths = tj.Quantity(jnp.arange(6.0).reshape(2, 3), "m")
    expected = [[0.0, 4.0, 10.0]]
    assert_quantity(tnp.prod(lengths, 0, jnp.float32, None, True), "m2", expected)


def test_tolerance_left_out_is_relative():
    """The default 1e-8 is a number of no unit: the answer must not depend on the prefix."""
    near = LENGTHS + tj.Quantity(1e-9, "m")
    assert not tnp.allclose(LENGTHS - LENGTHS, near - LENGTHS)
    assert tnp.allclose(LENGTHS - LENGTHS, near - LENGTHS, atol=tj.Quantity(10.0, "nm"))
    assert tnp.allclose(LENGTHS / LENGTHS - 1, near / LENGTHS - 1, rtol=0)
    with pytest.raises(tj.UnitError, match="atol"):
        tnp.isclose(LENGTHS, near, atol=1e-8)
    # Near the ends of the range a function is wrapped, and the tolerance goes with the wrapper.
    tiny = tj.Quantity(jnp.array([1e-30, 1.0], jnp.float32), "m")
    np.testing.assert_array_equal(tnp.isclose(tiny, 2 * tiny), [False, False])
    np.testing.assert_array_equal(tnp.isclose(tiny, tiny), [True, True])
    assert not tnp.allclose(tiny[:1], 2 * tiny[:1])


def test_calls_near_the_ends_of_the_range_are_compiled_once(caplog):
    tiny = tj.Quantity(jnp.array([1e-30, 1.0], jnp.float32), "m")
    for function in (lambda q: tnp.isclose(q, q), tnp.linalg.norm):
        function(tiny)
        with jax.log_compiles():
            function(tiny)
        assert caplog.messages == []


# -- functions of functions ------------------------------------------------------------------------


def test_vectorize_sees_quantities_and_may_change_the_unit():
    row = tnp.vectorize(lambda a, b: (a @ b, a), signature="(n),(n)->(),(n)")
    product, same = row(tj.Quantity(jnp.ones((2, 3)), "km"), TIMES)
    assert_agree(product, [1750.0, 1750.0], "m s")
    assert_agree(same, np.full((2, 3), 1000.0), "m")
    assert_agree(tnp.vectorize(lambda a: a * a)(LENGTHS), [2.25, 4.0, 16.0], "m^2")
    assert isinstance(tnp.vectorize(lambda a: 2 * a)(jnp.ones(2)), jax.Array)


def test_piecewise_converts_to_the_unit_of_the_first_piece():
    low = tnp.less(LENGTHS, tj.Quantity(1.8, "m"))
    pieces = [lambda x: x * x, tj.Quantity(100.0, "cm^2")]
    assert_agree(tnp.piecewise(LENGTHS, [low], pieces), [2.25, 0.01, 0.01], "m^2")
    with pytest.raises(tj.UnitError, match="piecewise"):
        tnp.piecewise(LENGTHS, [low], [lambda x: x * x, lambda x: x])


def test_minimize_labels_everything_it_found():
    center = tj.Quantity(jnp.array([2.0, -1.0]), "km")
    loss = lambda x: tj.Quantity(1.0, "kg") * tnp.sum((x - center) ** 2)
    start = tj.Quantity(jnp.array([0.0, 0.0]), "m")
    found = tanjax.scipy.optimize.minimize(loss, start, method="BFGS", tol=1e-9)
    np.testing.assert_allclose(found.x.to_value("km"), [2.0, -1.0], rtol=1e-6)
    assert found.fun.unit.dimension is tj.unit("kg m^2").dimension
    assert found.jac.unit.dimension is tj.unit("kg m").dimension
    assert found.hess_inv.unit.dimension is tj.unit("1/kg").dimension


def test_krylov_solver_with_a_function():
    matrix = tj.Quantity(jnp.array([[4.0, 1.0], [1.0, 3.0]]), "km")
    right = tj.Quantity(jnp.array([1.0, 2.0]), "ms")
    start = tj.Quantity(jnp.zeros(2), "s/m")
    x, _ = tanjax.scipy.sparse.linalg.cg(lambda v: matrix @ v, right, start, atol=0.0)
    assert_agree(x, np.linalg.solve([[4e3, 1e3], [1e3, 3e3]], [1e-3, 2e-3]), "s/m")
    with pytest.raises(tj.UnitError, match="starting point"):
        tanjax.scipy.sparse.linalg.cg(lambda v: matrix @ v, right)


def test_interpolator_has_a_unit_per_axis():
    make = tanjax.scipy.interpolate.RegularGridInterpolator
    values = tj.Quantity(jnp.arange(9.0).reshape(3, 3), "degC")
    found = make((LENGTHS, TIMES), values, bounds_error=False)
    point = (tj.Quantity(jnp.array([0.002]), "km"), tj.Quantity(jnp.array([0.75]), "s"))
    assert found(point).unit is values.unit
    np.testing.assert_allclose(found(point).value, [4.5])
    with pytest.raises(tj.UnitError, match=r"xi\[1\]"):
        found((LENGTHS[:1], LENGTHS[:1]))


def test_reductions_with_a_function_and_text_of_quantities():
    root = lambda a, b: tnp.hypot(a, b)
    zero = tj.Quantity(0.0, "km")
    assert_agree(tanjax.lax.reduce(LENGTHS, zero, root, (0,)), np.sqrt(22.25), "m")
    with pytest.raises(tj.UnitError, match="reduce"):
        tanjax.lax.reduce(LENGTHS, zero, lambda a, b: a * b, (0,))
    assert tnp.array_str(LENGTHS) == "[1.5 2.  4. ] m"
    assert "m" in tnp.array_repr(LENGTHS).rpartition(",")[2]


# -- distributions ---------------------------------------------------------------------------------


def test_a_scale_that_is_left_out_is_a_number():
    """A scale of 1 of no unit would make the density depend on the prefix."""
    norm = tanjax.scipy.stats.norm
    with pytest.raises(tj.UnitError, match="scale"):
        norm.pdf(LENGTHS)
    assert_agree(norm.cdf(LENGTHS / LENGTHS), np.full(3, 0.8413447460685429), "1")
    center, width = tj.Quantity(0.002, "km"), tj.Quantity(100.0, "cm")
    far, near = norm.pdf(LENGTHS, center, width), norm.pdf(LENGTHS.to("km"), center, width)
    np.testing.assert_allclose(far.to_value("1/m"), near.to_value("1/m"), rtol=1e-12)


def test_the_covariance_of_a_fit_over_a_dimension():
    """Every coefficient has a unit of its own, and so has every entry of their covariance."""
    x, y = np.arange(6.0), np.array([0.0, 1.5, 3.5, 9.5, 16.5, 24.5])
    m, s = tj.unit("m"), tj.unit("s")
    for cov in (True, "unscaled"):
        fitted, covariance = tnp.polyfit(x * s, y * m, 2, cov=cov)
        want, matrix = jnp.polyfit(x, y, 2, cov=cov)
        for i, (c, row) in enumerate(zip(fitted, covariance, strict=True)):
            assert c.unit == m / s ** (2 - i)
            np.testing.assert_allclose(c.value, want[i], rtol=1e-5, atol=1e-5)
            for j, entry in enumerate(row):
                assert entry.unit == m**2 / s ** (4 - i - j)
                np.testing.assert_allclose(entry.value, matrix[i, j], rtol=1e-5, atol=1e-5)
    fitted, residuals, rank, _, _ = tnp.polyfit(x * s, y * m, 1, full=True, w=np.ones(6) / m)
    want = jnp.polyfit(x, y, 1, full=True)
    assert residuals.unit == m**2 / m**2
    np.testing.assert_allclose(residuals.value, want[1], rtol=1e-5)
    assert int(rank) == 2
