"""Differential equations with units on time and state, against analytic solutions.

The oscillator m x'' = -k x with k/m = 4 / s²: x(t) = x0 cos 2t + v0/2 sin 2t.
"""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

import tanjax as tj
from tanjax.bridges.diffrax import SaveAt, SubSaveAt, diffeqsolve

m, cm, s, ms = (tj.unit(name) for name in ("m", "cm", "s", "ms"))
SPRING = {"k": 4.0 * tj.unit("N/m"), "m": 1000.0 * tj.unit("g")}
START = {"x": 100.0 * cm, "v": 1.0 * m / s}
ATOL = {"x": 1e-7 * cm, "v": 1e-9 * m / s}
TRACES = []


def oscillator(t, y, args):
    TRACES.append(t)
    return {"x": y["v"].to("km/h"), "v": -(args["k"] / args["m"]) * y["x"]}


def solve(y0=START, args=SPRING, t1=1500.0 * ms, *, atol=ATOL, **options):
    controller = diffrax.PIDController(rtol=1e-9, atol=atol, dtmax=1.0 * s)
    return diffeqsolve(
        diffrax.ODETerm(oscillator),
        diffrax.Dopri8(),
        0.0,
        t1,
        10.0 * ms,
        y0,
        args,
        stepsize_controller=controller,
        **options,
    )


def position(t):
    """In metres, at seconds."""
    return np.cos(2 * t) + 0.5 * np.sin(2 * t)


def velocity(t):
    return -2 * np.sin(2 * t) + np.cos(2 * t)


def test_state_of_mixed_units_against_the_analytic_solution():
    solution = solve()
    assert (solution.ts.unit, solution.ys["x"].unit, solution.ys["v"].unit) == (ms, cm, m / s)
    assert solution.t1 == 1.5 * s
    np.testing.assert_allclose(solution.ys["x"].to_value("m"), [position(1.5)], rtol=1e-8)
    np.testing.assert_allclose(solution.ys["v"].to_value("m/s"), [velocity(1.5)], rtol=1e-8)


def test_one_compilation_serves_later_calls():
    solve()
    before = len(TRACES)
    other = {"x": 7.0 * cm, "v": -1.0 * m / s}
    spring = {"k": 1.0 * tj.unit("N/m"), "m": 1.0 * tj.unit("g")}
    assert solve(other, spring, 20.0 * ms).ts == 20 * ms
    assert len(TRACES) == before


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_in_true_units_against_the_analytic_ones(compiled):
    def final(y0, args, t1):
        return solve(y0, args, t1).ys["x"][-1]

    gradient = tj.grad(final, (0, 1, 2))
    gradient = jax.jit(gradient) if compiled else gradient
    of_start, of_spring, of_t1 = gradient(START, SPRING, 1500.0 * ms)
    t, step = 1.5, 1e-6
    x = lambda w: np.cos(w * t) + np.sin(w * t) / w
    by_w = (x(2 + step) - x(2 - step)) / (2 * step)  # w = sqrt(k/m): dw/dk = 1/4, dw/dm = -1
    assert of_start["v"].unit.dimension is tj.unit("s").dimension
    np.testing.assert_allclose(of_start["x"].to_value("1"), np.cos(3.0), rtol=1e-7)
    np.testing.assert_allclose(of_start["v"].to_value("s"), np.sin(3.0) / 2, rtol=1e-7)
    np.testing.assert_allclose(of_spring["k"].to_value("m2/N"), by_w / 4, rtol=1e-6)
    np.testing.assert_allclose(of_spring["m"].to_value("m/kg"), -by_w, rtol=1e-6)
    np.testing.assert_allclose(of_t1.to_value("m/s"), velocity(t), rtol=1e-6)


def test_save_at_times_in_another_prefix_and_dense_output():
    times = np.array([0.0, 0.5, 1.25])
    solution = solve(saveat=SaveAt(ts=times * s, dense=True))
    np.testing.assert_allclose(solution.ts.to_value("ms"), 1000 * times)
    np.testing.assert_allclose(solution.ys["x"].to_value("m"), position(times), rtol=1e-6)
    at = solution.evaluate(0.7 * s)
    np.testing.assert_allclose(at["x"].to_value("m"), position(0.7), rtol=1e-5)
    np.testing.assert_allclose(at["v"].to_value("m/s"), velocity(0.7), rtol=1e-4)
    change = solution.evaluate(0.2 * s, 700.0 * ms)["x"].to_value("m")
    np.testing.assert_allclose(change, position(0.7) - position(0.2), rtol=1e-5)
    slope = solution.derivative(700.0 * ms)["x"].to_value("m/s")
    np.testing.assert_allclose(slope, velocity(0.7), rtol=1e-3)


def test_a_quantity_and_a_list_of_quantities_serve_as_save_at():
    for saveat in (np.array([0.5, 1.0]) * s, SaveAt(ts=[0.5 * s, 1000.0 * ms])):
        solution = solve(saveat=saveat)
        assert solution.ts.unit is ms
        np.testing.assert_allclose(
            solution.ys["x"].to_value("m"), position(solution.ts.to_value(s))
        )


def test_functions_of_what_to_save_return_quantities():
    energy = lambda t, y, a: (t, 0.5 * a["k"] * y["x"] ** 2 + 0.5 * a["m"] * y["v"] ** 2)
    subs = {"end": SubSaveAt(t1=True), "energy": SubSaveAt(ts=np.array([0.0, 1.0]) * s, fn=energy)}
    solution = solve(saveat=SaveAt(subs=subs))
    when, joules = solution.ys["energy"]
    np.testing.assert_allclose(when.to_value("s"), [0.0, 1.0])
    np.testing.assert_allclose(joules.to_value("J"), [2.5, 2.5], rtol=1e-7)
    np.testing.assert_allclose(solution.ys["end"]["x"].to_value("m"), [position(1.5)], rtol=1e-8)


def test_diffrax_save_at_without_times():
    solution = solve(saveat=diffrax.SaveAt(t0=True, t1=True))
    np.testing.assert_allclose(solution.ts.to_value("s"), [0.0, 1.5])
    np.testing.assert_allclose(solution.ys["x"].to_value("m")[0], 1.0)


@pytest.mark.slow
def test_absolute_tolerances_mean_what_they_say():
    """The same tolerances in other units, or as plain numbers in the units of the state."""
    loose = {"x": 1e-3 * m, "v": 10.0 * m / s}
    steps = lambda **options: int(solve(**options).stats["num_steps"])
    said = steps(atol=loose)
    assert said < steps(atol=ATOL)
    assert said == steps(atol={"x": 0.1 * cm, "v": 36.0 * tj.unit("km/h")})
    assert said == steps(atol={"x": 0.1, "v": 10.0})
    in_metres = {"x": 1.0 * m, "v": 1.0 * m / s}
    assert said == steps(y0=in_metres, atol=loose)
    assert steps(y0=in_metres, atol=1e-3) == steps(y0=in_metres, atol={"x": 1e-3, "v": 1e-3})


def decay(y0, t1, rate, **options):
    term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
    return diffeqsolve(term, diffrax.Tsit5(), t1 * 0.0, t1, t1 * 0.01, y0, rate, **options)


def test_one_leaf_with_a_tolerance_and_a_half_life_in_hours():
    controller = diffrax.PIDController(rtol=1e-10, atol=1e-9 * tj.unit("kBq"))
    activity = decay(
        np.array([1.0, 5.0]) * tj.unit("Bq"),
        6.0 * tj.unit("hour"),
        np.log(2) / (2.0 * tj.unit("hour")),
        stepsize_controller=controller,
    ).ys
    np.testing.assert_allclose(activity.to_value("Bq"), [[0.125, 0.625]], atol=1e-6)


def test_plain_time_and_plain_state():
    solution = decay(jnp.array(2.0), 1.0, 3.0)
    np.testing.assert_allclose(solution.ys, [2 * np.exp(-3.0)], rtol=1e-6)
    assert not tj.rules.is_structured(solution.ts)


def test_temperatures_in_degrees():
    """On a scale with an offset the state is a point, its rate a difference."""
    room = tj.Quantity(20.0, "degC")
    cooling = diffrax.ODETerm(lambda t, y, rate: -rate * (y - room))
    start, saveat = tj.Quantity(80.0, "degC"), SaveAt(t1=True, dense=True)
    solution = diffeqsolve(
        cooling, diffrax.Tsit5(), 0.0, 60 * s, 1 * s, start, 0.02 / s, saveat=saveat
    )
    end = 20 + 60 * np.exp(-1.2)
    np.testing.assert_allclose(solution.ys.to_value("degC"), [end], rtol=1e-6)
    change = solution.evaluate(0.0 * s, 60 * s)
    assert change.unit == tj.unit("delta_degC")
    np.testing.assert_allclose(change.value, end - 80, rtol=1e-6)


def test_events_see_quantities():
    crossing = lambda t, y, args, **kwargs: y["x"] - 0.0 * m
    event = diffrax.Event(crossing, optimistix.Newton(1e-10, 1e-10))
    solution = solve(event=event)
    zero = (np.pi - np.arctan(2.0)) / 2  # tan 2t = -2
    np.testing.assert_allclose(solution.ts.to_value("s"), [zero], rtol=1e-8)
    late = lambda t, y, args, **kwargs: t > 300 * ms
    assert 0.3 * s < solve(event=diffrax.Event(late)).ts[0] < 1.4 * s


def test_steady_state_event_of_diffrax():
    event = diffrax.Event(diffrax.steady_state_event())
    controller = diffrax.PIDController(rtol=1e-3, atol=1e-3)
    solution = decay(1.0 * m, 1000.0 * s, 1.0 / s, event=event, stepsize_controller=controller)
    assert 1.0 * s < solution.ts[0] < 100.0 * s


def test_noise_is_in_the_square_root_of_time():
    """Pure diffusion: the same path in seconds and, a sixtieth of the numbers, in minutes."""
    path = diffrax.VirtualBrownianTree(0.0, 60.0, 1e-2, (), jax.random.key(0))
    drift = diffrax.ODETerm(lambda t, y, args: 1.0 * m / s)
    noise = diffrax.ControlTerm(lambda t, y, args: 3.0 * tj.unit("cm/s^(1/2)"), path)
    terms = diffrax.MultiTerm(drift, noise)
    end = diffeqsolve(terms, diffrax.Euler(), 0.0, 60.0 * s, 1.0 * s, 0.0 * m).ys[-1]
    np.testing.assert_allclose(end.to_value("m"), 60 + 0.03 * path.evaluate(0.0, 60.0), rtol=1e-8)
    wrong = diffrax.ControlTerm(lambda t, y, args: 3.0 * m / s, path)
    with pytest.raises(tj.UnitError, match=r"m / s\^\(1/2\)"):
        diffeqsolve(wrong, diffrax.Euler(), 0.0, 60.0 * s, 1.0 * s, 0.0 * m)


def test_structured_state():
    """A diagonal matrix of lengths stays one."""
    start = tj.Diagonal(jnp.array([1.0, 2.0])) * m
    end = decay(start, 1.0 * s, 2.0 / s).ys
    assert isinstance(end.value, tj.Diagonal)
    np.testing.assert_allclose(end.value.diag, [[np.exp(-2.0), 2 * np.exp(-2.0)]], rtol=1e-6)


def test_pairs_of_terms_of_a_symplectic_solver():
    """Each term moves its half of the state, given the other half; the energy stays."""
    pair = (
        diffrax.ODETerm(lambda t, v, args: v),
        diffrax.ODETerm(lambda t, x, args: -4.0 * x.to("m") / s**2),
    )
    start = (100.0 * cm, 1.0 * m / s)
    x, v = diffeqsolve(
        pair, diffrax.SemiImplicitEuler(), 0.0, 100.0 * s, 1.0 * ms, start, max_steps=None
    ).ys
    assert (x.unit, v.unit) == (cm, m / s)
    np.testing.assert_allclose((4 * x**2 / s**2 + v**2).to_value("m2/s2"), [5.0], rtol=3e-3)


def test_other_adjoints_forward_mode_and_vmap():
    def end(rate, adjoint):
        return decay(1.0 * m, 2.0 * s, rate, adjoint=adjoint).ys[-1]

    rate = 1.0 / s
    for adjoint in (diffrax.DirectAdjoint(), diffrax.BacksolveAdjoint()):
        gradient = tj.grad(lambda rate, adjoint=adjoint: end(rate, adjoint))(rate)
        np.testing.assert_allclose(gradient.to_value("m s"), -2 * np.exp(-2), rtol=1e-5)
    forward = lambda rate: end(rate, diffrax.ForwardMode())
    out, out_dot = tj.jvp(forward, (rate,), (0.5 / s,))
    np.testing.assert_allclose(out.to_value("m"), np.exp(-2), rtol=1e-6)
    np.testing.assert_allclose(out_dot.to_value("m"), -np.exp(-2), rtol=1e-5)
    many = jax.vmap(forward)(np.array([1.0, 2.0]) / s)
    np.testing.assert_allclose(many.to_value("m"), np.exp([-2.0, -4.0]), rtol=1e-5)


def test_brownian_motion_of_several_components():
    """A matrix of amplitudes times a vector of noise."""
    path = diffrax.VirtualBrownianTree(0.0, 4.0, 1e-2, (2,), jax.random.key(1))
    amplitude = np.array([[1.0, 2.0], [0.0, 3.0], [1.0, -1.0]])
    noise = diffrax.ControlTerm(lambda t, y, args: amplitude * tj.unit("m/s^(1/2)"), path)
    end = diffeqsolve(noise, diffrax.Euler(), 0.0, 4.0 * s, 1.0 * s, np.zeros(3) * cm).ys[-1]
    np.testing.assert_allclose(end.to_value("m"), amplitude @ path.evaluate(0.0, 4.0), rtol=1e-8)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (lambda t, y, a: y, r"dy\['v'\].*got: m / s \("),
        (lambda t, y, a: {"x": 1.0, "v": y["v"] / s}, r"dy\['x'\].*got: a plain number"),
    ],
)
def test_a_wrong_vector_field_names_the_leaf(field, told):
    with pytest.raises(tj.UnitError, match=f"(?s){told}"):
        diffeqsolve(diffrax.ODETerm(field), diffrax.Euler(), 0.0, 1.0 * s, 0.1 * s, START)


def test_arguments_of_the_wrong_unit_or_structure_are_named():
    def euler(t0=0.0, dt0=0.1 * s, term=oscillator, wrap=diffrax.ODETerm):
        return diffeqsolve(wrap(term), diffrax.Euler(), t0, 1.0 * s, dt0, START, SPRING)

    control = lambda field: diffrax.ControlTerm(field, lambda t0, t1: t1 - t0)
    for error, told, call in [
        (tj.ShapeError, "vector field", lambda: euler(term=lambda t, y, a: y["x"] / s)),
        (tj.UnitError, "dt0", lambda: euler(dt0=0.1)),
        (tj.UnitError, "t0", lambda: euler(t0=1.0 * m)),
        (tj.UnitError, "saveat: ts", lambda: solve(saveat=SaveAt(ts=np.ones(2) * m))),
        (tj.UnitError, "several units", lambda: solve(atol=1e-6 * m)),
        (tj.UnitError, "atol: leaf 0", lambda: solve(atol={"x": 1e-6 * m, "v": 1e-6 * m})),
        (tj.UnitError, "no units for a ControlTerm", lambda: euler(wrap=control)),
        (tj.UnitError, "evaluate: t", lambda: solve(saveat=SaveAt(dense=True)).evaluate(1.0 * m)),
    ]:
        with pytest.raises(error, match=told):
            call()
