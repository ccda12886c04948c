"""Roots, minima, fits and fixed points of quantities, against closed forms."""

import jax
import numpy as np
import optimistix
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from tanjax.bridges.optimistix import fixed_point, least_squares, minimise, root_find

m, cm, s, ms = (tj.unit(name) for name in ("m", "cm", "s", "ms"))
NEWTON = optimistix.Newton(1e-12, 1e-12)
G = 9.81 * tj.unit("m/s2")
TRACES = []


def fall(t, height):
    """What is left of the height after a time."""
    TRACES.append(t)
    return height - 0.5 * G * t**2


def duration(height):
    return root_find(fall, NEWTON, 500.0 * ms, height).value


@pytest.mark.parametrize("compiled", [False, True])
def test_root_and_its_implicit_gradient(compiled):
    both = tj.value_and_grad(duration)
    value, gradient = (jax.jit(both) if compiled else both)(300.0 * cm)
    assert value.unit is ms
    np.testing.assert_allclose(value.to_value("s"), np.sqrt(6 / 9.81), rtol=1e-10)
    np.testing.assert_allclose(gradient.to_value("s/m"), 0.5 * np.sqrt(2 / 9.81 / 3), rtol=1e-10)


def test_one_compilation_serves_later_calls():
    duration(2.0 * m)
    before = len(TRACES)
    np.testing.assert_allclose(duration(8.0 * m).to_value("s"), np.sqrt(16 / 9.81), rtol=1e-10)
    assert len(TRACES) == before


def test_brackets_are_quantities():
    solver = optimistix.Bisection(1e-10, 1e-10)
    solve = lambda lower: root_find(
        fall, solver, 1.0 * s, 3.0 * m, options={"lower": lower, "upper": 1e4 * ms}
    )
    np.testing.assert_allclose(solve(0.0 * s).value.to_value("s"), np.sqrt(6 / 9.81), rtol=1e-8)
    with pytest.raises(tj.UnitError, match="root_find: lower"):
        solve(0.1 * m)


def test_equations_of_several_units():
    """A body thrown upwards: when and how fast, from a height and an energy."""
    mass = 2.0 * tj.unit("kg")

    def equations(y, height):
        return {
            "height": y["v"] * y["t"] - 0.5 * G * y["t"] ** 2 - height,
            "energy": 0.5 * mass * y["v"] ** 2 - 100.0 * tj.unit("J"),
        }

    start = {"t": 100.0 * ms, "v": 9.0 * m / s}
    value = root_find(equations, NEWTON, start, 2.0 * m).value
    np.testing.assert_allclose(value["v"].to_value("m/s"), 10.0, rtol=1e-10)
    expected = (10 - np.sqrt(100 - 4 * 9.81)) / 9.81
    np.testing.assert_allclose(value["t"].to_value("s"), expected, rtol=1e-10)


def test_auxiliary_values_keep_their_units():
    function = lambda t, height: (fall(t, height), (G * t, t))
    solution = root_find(function, NEWTON, 1.0 * s, 3.0 * m, has_aux=True)
    np.testing.assert_allclose(solution.aux[0].to_value("m/s"), np.sqrt(6 * 9.81), rtol=1e-8)


def test_fixed_point():
    heron = lambda y, area: 0.5 * (y + area / y.to("mm"))
    solver = optimistix.FixedPointIteration(1e-12, 1e-12)
    side = lambda area: fixed_point(heron, solver, 100.0 * cm, area).value
    value, gradient = tj.value_and_grad(side)(2.0 * m**2)
    assert value.unit is cm
    np.testing.assert_allclose(value.to_value("m"), np.sqrt(2), rtol=1e-10)
    np.testing.assert_allclose(gradient.to_value("1/m"), 0.5 / np.sqrt(2), rtol=1e-10)
    with pytest.raises(tj.UnitError, match="fixed_point: value"):
        fixed_point(lambda y, area: area / s, solver, 100.0 * cm, 2.0 * m**2)


CONSTANT = optimistix.FixedPointIteration(1e-12, 1e-12)


@pytest.mark.parametrize(
    ("x", "start", "expected"),
    [
        (3.0 * tj.unit("km"), 1.0 * m, 3000.0),
        (0.0, 1.0 * m, 0.0),
        (2.0, 1.0, 2.0),
        (2.0 * tj.unit("m/km"), 1.0, 0.002),
        (0.5, 1.0 * tj.unit("percent"), 50.0),
        (tj.Quantity(20.0, "degC"), 1.0 * tj.unit("K"), 293.15),
    ],
    ids=str,
)
def test_results_of_functions_are_converted(x, start, expected):
    value = fixed_point(lambda y, args: x, CONSTANT, start).value
    assert getattr(value, "unit", None) is getattr(start, "unit", None)
    assert getattr(value, "value", value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("x", "start", "told"),
    [
        (2.0, 1.0 * m, "fixed_point: value: the unit does not fit"),
        (2.0 * m, 1.0, "fixed_point: value: the unit does not fit"),
        (2.0 * m, 1.0 * s, "fixed_point: value: the unit does not fit"),
        (False, 1.0 * m, "fixed_point: value: the unit does not fit"),
        ({"t": [5.0 * m]}, {"t": [1.0 * s]}, r"fixed_point: value\['t'\]\[0\]"),
        ({"x": 0.0 * m}, {"t": 0.0 * m}, "fixed_point: value: the tree has the wrong structure"),
    ],
    ids=str,
)
def test_results_that_do_not_fit_are_named(x, start, told):
    with pytest.raises((tj.UnitError, tj.ShapeError), match=told):
        fixed_point(lambda y, args: x, CONSTANT, start)


def test_minimum_of_an_energy():
    """A mass on a spring hangs at m g / k."""
    energy = lambda x, k: 0.5 * k * x**2 - 2.0 * tj.unit("kg") * G * x
    solver = optimistix.BFGS(1e-12, 1e-12)
    rest = lambda k: minimise(energy, solver, 1.0 * cm, k).value
    value, gradient = tj.value_and_grad(rest)(4.0 * tj.unit("N/cm"))
    np.testing.assert_allclose(value.to_value("m"), 19.62 / 400, rtol=1e-8)
    np.testing.assert_allclose(gradient.to_value("m2/N"), -19.62 / 400**2, rtol=1e-8)


TIMES = np.linspace(0.0, 3.0, 7) * s
TRUTH = {"height": 3.0 * m, "lifetime": 2.0 * s}
GUESS = {"height": 200.0 * cm, "lifetime": 1000.0 * ms}
SOLVER = optimistix.LevenbergMarquardt(1e-12, 1e-12)


def model(p):
    return p["height"] * tnp.exp(-TIMES / p["lifetime"])


def test_fit_and_its_sensitivity_to_the_data():
    fit = lambda data: least_squares(lambda p, x: model(p) - x, SOLVER, GUESS, data).value
    data = model(TRUTH)
    found = fit(data)
    assert (found["height"].unit, found["lifetime"].unit) == (cm, ms)
    np.testing.assert_allclose(found["height"].to_value("m"), 3.0, rtol=1e-9)
    np.testing.assert_allclose(found["lifetime"].to_value("s"), 2.0, rtol=1e-9)
    # At the minimum dp/dx is the pseudo-inverse of dmodel/dp; here by hand, in m and s.
    t = TIMES.value
    decay = np.exp(-t / 2)
    expected = np.linalg.pinv(np.stack([decay, 3 * decay * t / 4], 1))
    jacobian = tj.jacobian(fit)(data)
    assert jacobian["lifetime"].unit.dimension is tj.unit("s/m").dimension
    np.testing.assert_allclose(jacobian["height"].to_value("1"), expected[0], atol=1e-7)
    np.testing.assert_allclose(jacobian["lifetime"].to_value("s/m"), expected[1], atol=1e-7)


def test_residuals_of_one_dimension_count_in_one_unit():
    """Two measurements of one length, in m and in cm, weigh the same."""
    lengths = lambda y, _: [y - 1.0 * m, (y - 300.0 * cm).to("mm")]
    found = least_squares(lengths, SOLVER, 100.0 * cm).value
    np.testing.assert_allclose(found.to_value("m"), 2.0, rtol=1e-9)


def test_residuals_of_several_dimensions_want_a_scale():
    """A length of 1.0 ± 0.1 m and an area of 4 ± 1 m², of a square: the weighted mean."""
    residuals = lambda y, _: {"length": y - 1.0 * m, "area": y**2 - 4.0 * m**2}
    with pytest.raises(tj.UnitError, match=r"(?s)squares.*residual\['length'\]: in cm .*scale"):
        least_squares(residuals, SOLVER, 100.0 * cm)
    scale = {"length": 10.0 * cm, "area": 1.0 * m**2}
    found = least_squares(residuals, SOLVER, 100.0 * cm, scale=scale).value.to_value("m")
    derivative = 2 * (found - 1) / 0.1**2 + 2 * (found**2 - 4) * 2 * found
    np.testing.assert_allclose(derivative, 0.0, atol=1e-8)
    with pytest.raises(tj.UnitError, match=r"residual\['area'\] / scale"):
        least_squares(residuals, SOLVER, 100.0 * cm, scale=scale | {"area": 1.0 * m})


def test_plain_problems_stay_plain():
    value = root_find(lambda y, a: y * y - a, NEWTON, 1.0, 2.0).value
    assert isinstance(value, jax.Array)
    np.testing.assert_allclose(value, np.sqrt(2))
    fit = least_squares(lambda y, a: y - a, SOLVER, np.zeros(2), np.ones(2)).value
    np.testing.assert_allclose(fit, 1.0)


TARGET = np.array([[1.0, -0.4, 0.3], [-0.4, 2.0, 0.6], [0.3, 0.6, -1.5]])
STARTS = {
    "Symmetric": tj.Symmetric(np.eye(3)),
    "Triangular": tj.Triangular(np.eye(3)),
    "Banded": tj.Banded(np.ones((3, 3)), 1, 1),
    "BlockDiagonal": tj.BlockDiagonal(tj.Symmetric(np.eye(2)), np.eye(1)),
}


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in a dict"])
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
@pytest.mark.parametrize(
    "solver", [optimistix.GaussNewton, optimistix.Dogleg], ids=lambda solver: solver.__name__
)
def test_solvers_of_second_order_find_structured_unknowns(solver, start, whole):
    """The Jacobian by stored numbers is singular; by those that are free it is not."""
    columns = np.random.default_rng(0).normal(size=(3, 10))
    target = tj.tangents.restructure(start, TARGET) @ columns
    unknown = (lambda p: p) if whole else (lambda p: p["a"])
    residual = lambda p, _: unknown(p) @ columns - target
    found = unknown(
        least_squares(residual, solver(1e-10, 1e-10), start if whole else {"a": start}).value
    )
    assert type(found) is type(start)
    np.testing.assert_allclose(found @ columns, target, atol=1e-9)


def test_minimum_over_definite_matrices_has_its_implicit_gradient():
    b = np.array([1.0, 2.0, 3.0])
    start = tj.Symmetric(np.eye(3), definite=True)

    def solution(c):
        loss = lambda a, c: tj.linalg.pairing(a, c) - tj.logdet(a)
        return minimise(loss, optimistix.BFGS(1e-10, 1e-10), start, c, max_steps=4000).value

    c = TARGET @ TARGET + np.eye(3)
    assert solution(c).definite
    np.testing.assert_allclose(solution(c).to_dense(), np.linalg.inv(c), atol=1e-8)
    exact = lambda c: (jax.numpy.linalg.inv((c + c.T) / 2) @ b).sum()
    gradient = jax.grad(lambda c: (solution(c) @ b).sum())(c)
    np.testing.assert_allclose(gradient, jax.grad(exact)(c), rtol=1e-6)


def test_equations_and_fixed_points_of_a_symmetric_matrix():
    """Lyapunov's equation in units: six equations for six numbers. And an average."""
    a = np.array([[-1.0, 0.2, 0.0], [0.1, -2.0, 0.3], [0.0, 0.1, -1.5]])
    kg = tj.unit("kg")

    def equation(x, _):
        rest = a @ x.to_dense().to_value("kg")
        return tj.Symmetric(rest + rest.T + TARGET, definite=True) * kg  # a promise of no meaning

    x = root_find(equation, NEWTON, tj.Symmetric(np.eye(3)) * tj.unit("g")).value
    assert x.unit is tj.unit("g")
    dense = x.to_dense().to_value("kg")
    np.testing.assert_allclose(a @ dense + dense @ a.T, -TARGET, atol=1e-12)
    halved = lambda x, _: tj.Symmetric(0.5 * x.to_dense() + np.eye(3))
    solver = optimistix.FixedPointIteration(1e-10, 1e-10)
    found = fixed_point(halved, solver, tj.Symmetric(np.eye(3), definite=True)).value
    np.testing.assert_allclose(found.data, 2 * np.eye(3), atol=1e-8)
