"""Rules and operations on quantities: natural cotangents carry their true units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import wave
from quantities import assert_plain, assert_quantity
from tanjax.testing import Samples, check_operation

pytestmark = pytest.mark.core

m, km, s, kg = (tj.unit(name) for name in ("m", "km", "s", "kg"))
N = 3
D = jnp.asarray([2.0, 3.0, 4.5])
V = jnp.asarray([1.5, -2.25, 4.0])


def quadratic(pull=None, units=None, seen=None):
    """`x @ a @ x` with a rule that works on quantities themselves, or on numbers with `units`."""

    @tj.operation(units=units)
    def quadratic(a, x):
        return x @ (a @ x)

    def right(a, x, y_bar):
        return tj.Outer(y_bar * x, x), y_bar * (a @ x + a.mT @ x)

    @quadratic.natural_rule
    def quadratic_rule(a, x):
        def quadratic_pullback(y_bar):
            if seen is not None:
                seen.append((a, x, y_bar))
            return (pull or right)(a, x, y_bar)

        return quadratic.primal(a, x), quadratic_pullback

    return quadratic


SIGNATURES = {"quantities in the rule": None, "unit signature": "a: u, x: v -> u*v^2"}
KINDS = {
    "Diagonal": lambda: tj.Diagonal(D),
    "Symmetric": lambda: tj.Symmetric(wave(jnp.zeros((N, N)))),
    "dense": lambda: wave(jnp.zeros((N, N))),
    "LowRank": lambda: tj.LowRank(V[:, None], D[:, None]),
}
every_signature = pytest.mark.parametrize("units", SIGNATURES.values(), ids=SIGNATURES)
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_signature
@every_kind
def test_an_operation_on_quantities_has_true_units(units, kind):
    """With and without a signature: value and gradients of the plain call, in true units."""
    f, a = quadratic(units=units), KINDS[kind]()
    value, (a_bar, x_bar) = tj.value_and_grad(f, (0, 1))(tj.Quantity(a, kg), V * km)
    want, (a_plain, x_plain) = tj.value_and_grad(f, (0, 1))(a, V)
    assert_quantity(value, "kg km^2", want)
    assert_quantity(a_bar, "km^2", a_plain)
    assert type(a_bar.value) is type(a_plain)
    assert_quantity(x_bar, "kg km", x_plain)
    assert_quantity(jax.jit(f)(tj.Quantity(a, kg), V * km), "kg km^2", want)
    moved = tj.jvp(f, (tj.Quantity(a, kg), V * km), (0.0, D * km / s))[1]
    assert_quantity(moved, "kg km^2 / s", D @ x_plain)


def test_inside_the_rule_cotangents_are_quantities():
    """The cotangent of a loss in J of a result in kg m2 is in J / (kg m2)."""
    seen = []
    f = quadratic(seen=seen)
    a, x = tj.Diagonal(D * kg), V * m
    tj.grad(lambda x: f(a, x) / (2.0 * s) ** 2)(x)
    a_seen, x_seen, y_bar = seen[0]
    assert a_seen.unit is kg
    assert x_seen.unit is m
    assert y_bar.unit == (kg * m**2).inverse
    seen.clear()
    out, pullback = tj.vjp(f, a, x)
    bars = pullback(2.0 / s)
    assert seen[0][2].unit.dimension is (kg * m**2).inverse.dimension
    assert_quantity(bars[0], "m^2 / s", tj.Diagonal(2 * V**2))
    assert_quantity(bars[1], "kg m / s", 4 * D * V)
    assert_quantity(out, "kg m^2", jnp.sum(D * V**2))


def test_with_a_signature_the_rule_sees_numbers():
    seen = []
    f = quadratic(seen=seen, units="a: u, x: v -> u*v^2")
    tj.grad(f, (0, 1))(tj.Diagonal(D * kg), V * m)
    assert isinstance(seen[0][0], tj.Diagonal)
    assert not any(isinstance(v, tj.Quantity) for v in seen[0])


WRONG = {
    "x": lambda a, x, y_bar: (tj.Outer(y_bar * x, x), y_bar * (a @ x + a.mT @ x) * tnp.sum(x)),
    "x, lost": lambda a, x, y_bar: (tj.Outer(y_bar * x, x), (y_bar * (a @ x)).value),
    "a": lambda a, x, y_bar: (tj.Outer(y_bar * x, x / x[0]), y_bar * (a @ x + a.mT @ x)),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("transform", ["grad", "vjp", "jacrev", "jit", "jax.grad", "hessian"])
def test_a_wrong_dimension_names_rule_and_argument(fault, transform):
    """Nothing else than the names of rule and argument helps its author."""
    f = quadratic(WRONG[fault])
    a, x = tj.Diagonal(D * kg), V * m
    run = {
        "grad": lambda: tj.grad(f, (0, 1))(a, x),
        "vjp": lambda: tj.vjp(f, a, x)[1](1.0),
        "jacrev": lambda: tj.jacrev(f, (0, 1))(a, x),
        "jit": lambda: jax.jit(tj.grad(f, (0, 1)))(a, x),
        "jax.grad": lambda: jax.grad(lambda a, x: f(a, x).value, (0, 1))(a, x),
        "hessian": lambda: tj.hessian(f, 1)(a, x),
    }[transform]
    words = rf"(?s)quadratic_rule: cotangent of {fault[0]}: .*must be in 1 / (m|kg).*got"
    with pytest.raises(tj.UnitError, match=words):
        run()


def test_a_wrong_prefix_is_converted_not_refused():
    in_km = lambda a, x, y_bar: (
        tj.Outer(y_bar * x, x), (y_bar * (a @ x + a.mT @ x)).to("1/km"),
    )  # fmt: skip
    want = tj.grad(quadratic(), 1)(tj.Diagonal(D * kg), V * m)
    got = tj.grad(quadratic(in_km), 1)(tj.Diagonal(D * kg), V * m)
    assert_quantity(got, str(want.unit), want.value)


# -- a rule in hand --------------------------------------------------------------------------------


@every_signature
def test_rrule_and_frule_on_quantities(units):
    """Structural cotangents out, labelled as the primal; values those of plain arrays."""
    f = quadratic(units=units)
    a, x = tj.Diagonal(D * kg), V * km
    out, pullback = tj.rules.rrule(f, a, x)
    assert_quantity(out, "kg km^2", jnp.sum(D * V**2))
    a_bar, x_bar = pullback(tj.Quantity(jnp.ones(()), out.unit))
    assert jax.tree.structure((a_bar, x_bar)) == jax.tree.structure((a, x))
    np.testing.assert_allclose(a_bar.value.diag, V**2)
    np.testing.assert_allclose(x_bar.value, 2 * D * V)
    tangents = (tj.Diagonal(V * kg), D * km)
    out, moved = tj.rules.frule(f, (a, x), tangents)
    assert_quantity(out, "kg km^2", jnp.sum(D * V**2))
    assert_quantity(moved, "kg km^2", jnp.sum(V**3 + 2 * D * V * D))
    assert_quantity(f.primal(a, x), "kg km^2", jnp.sum(D * V**2))
    as_vjp = tj.rules.as_custom_vjp(f)
    assert_quantity(tj.grad(as_vjp, 1)(a, x), "kg km", 2 * D * V)


@pytest.mark.parametrize("op", [tj.solve, tj.matmul], ids=["solve", "matmul"])
def test_rrule_of_shipped_operations(op):
    """A vector with a unit is not a structured matrix."""
    a, b = tj.Diagonal(D * kg), V * km
    out, pullback = tj.rules.rrule(op, a, b)
    want, plain = tj.rules.rrule(op, a.value, b.value)
    np.testing.assert_allclose(out.value, want)
    bars, bars_plain = pullback(out), plain(want)
    np.testing.assert_allclose(bars[0].value.diag, bars_plain[0].diag)
    np.testing.assert_allclose(bars[1].value, bars_plain[1])
    moved, moved_plain = (tj.rules.frule(op, p, p)[1] for p in ((a, b), (a.value, b.value)))
    np.testing.assert_allclose(moved.value, moved_plain, atol=1e-14)
    assert_quantity(op.primal(a, b), str(out.unit), want)


def test_wrap_natural_pullback():
    """From natural cotangents with units to structural ones, each checked."""
    x, t = V * km, 2.0 * s
    out = x / t
    pull = lambda v_bar: (v_bar / t, -tnp.sum(v_bar * out) / t)
    structural = tj.wrap_natural_pullback(pull, out, x, t)
    x_bar, t_bar = structural(tj.Quantity(jnp.ones(3), out.unit))
    assert x_bar.unit is km
    assert t_bar.unit is s
    np.testing.assert_allclose(x_bar.value, np.full(3, 0.5))
    np.testing.assert_allclose(t_bar.value, -np.sum(V) / 4)
    want = jax.vjp(lambda x, t: x / t, x, t)[1](tj.Quantity(jnp.ones(3), out.unit))
    np.testing.assert_allclose(want[0].value, x_bar.value)
    np.testing.assert_allclose(want[1].value, t_bar.value)

    def forgot(v_bar):
        return v_bar, -tnp.sum(v_bar * out) / t

    with pytest.raises(tj.UnitError, match=r"(?s)forgot.*argument 0.*1 / km"):
        tj.wrap_natural_pullback(forgot, out, x, t)(tj.Quantity(jnp.ones(3), out.unit))


def test_quantities_next_to_plain_arguments():
    """The cotangent of a plain argument must be a pure number, and is stripped."""
    f = tj.operation(lambda w, x: tnp.sum(w * x))
    f.natural_rule(lambda w, x: (f.primal(w, x), lambda y_bar: (y_bar * x, y_bar * w)))
    w_bar, x_bar = tj.grad(f, (0, 1))(D, V * km)
    assert_quantity(w_bar, "km", V)
    assert_quantity(x_bar, "1", D)
    ratio = tj.grad(lambda w, x: f(w, x) / (1.0 * km))(D, V * km)
    np.testing.assert_allclose(tj.Quantity(ratio.value, ratio.unit).to_value("1")
                               if type(ratio) is tj.Quantity else ratio, V)  # fmt: skip


# -- signatures of operations ----------------------------------------------------------------------


def test_a_signature_converts_and_refuses():
    @tj.operation(units="a: u, b: u, c: v -> u/v")
    def rate(a, b, c=2.0):
        return (a + b) / 2.0 / c

    assert_quantity(rate(1.0 * km, 500.0 * m, 2.0 * s), "km/s", 0.375)
    assert_quantity(rate(1.0 * km, 0, 2.0 * s), "km/s", 0.25)
    assert_plain(rate(1.0, 2.0, 3.0), 0.5)
    for args, words in (
        ((1.0 * m, 1.0 * s), "rate"),
        ((1.0 * km, 1.0 * s, 1.0 * s), r"(?s)rate.*a: unit km.*b: unit s"),
        ((1.0 * km, 1.0, 1.0 * s), r"(?s)rate.*b: a plain number"),
    ):
        with pytest.raises(tj.UnitError, match=words):
            rate(*args)


def test_a_signature_that_cannot_be_read():
    op = tj.operation(lambda a: a, units="a is u")
    with pytest.raises(tj.errors.RegistrationError, match="signature"):
        op(1.0 * m)


# -- the testing kit -------------------------------------------------------------------------------


def problem(kind=tj.Diagonal):
    sample = Samples(2)
    value = kind(sample.positive(N) if kind is tj.Diagonal else sample.regular(N))
    return tj.Quantity(value, kg), tj.Quantity(sample.normal(N), km)


SHIPPED = [(tj.solve, tj.Symmetric), (tj.matmul, tj.Symmetric)]
OWN = [(quadratic(units=units), tj.Diagonal) for units in SIGNATURES.values()]


@pytest.mark.parametrize(("op", "kind"), OWN + SHIPPED, ids=[*SIGNATURES, "solve", "matmul"])
def test_the_kit_passes_operations_on_quantities(op, kind):
    result = check_operation(op, *problem(kind))
    assert set(result.stages) >= {"value", "vjp", "jvp", "finite differences", "natural"}
    assert result.stages["units"].scalars > 10
    assert result.worst_error < 1e-6


def reads_values(a, x, y_bar):
    """Right in kg, wrong in g: every derivative at one prefix agrees."""
    x_bar = y_bar * (a @ x + a.mT @ x)
    return tj.Outer(y_bar * x, x), tj.Quantity(x_bar.value, (y_bar.unit * kg) * x.unit)


FAULTS = {
    "signature times": (quadratic(units="a: u, x: v -> u*v"), "quadratic"),
    "signature square": (quadratic(units="a: u, x: v -> u^2*v^2"), "quadratic"),
    "signature without a": (quadratic(units="a: u, x: v -> v^2"), "quadratic"),
    "rule": (quadratic(reads_values), "units: .*kg"),
    "operation": (
        tj.operation(lambda x: x + tj.Quantity(tnp.sum(x.value), km)),
        "units: the result with x in",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_kit_catches_what_depends_on_prefixes(fault):
    """By giving one argument at a time in another prefix."""
    op, words = FAULTS[fault]
    args = problem()[1:] if fault == "operation" else problem()
    with pytest.raises(tj.errors.CheckFailure, match=words):
        check_operation(op, *args)
