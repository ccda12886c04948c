"""`check_operation` passes what is right and catches every planted fault."""

import itertools
import re

import jax
import jax.numpy as jnp
import pytest
from jax import Array

import tanjax as tj
from tanjax.testing import Samples, check_adjoint, check_operation, check_rule


def pullback(a, x):
    return lambda y_bar: (tj.Outer(y_bar, x), a.mT @ y_bar)


def product(pull=pullback, implementation=None, push=None):
    """`a @ x` with a rule and an implementation for triangular matrices, some of it replaced."""

    def make():
        @tj.operation
        def product(a, x):
            return a @ x

        beside = lambda map: lambda a, x: (product.primal(a, x), map(a, x))
        product.implementation(tj.Triangular)(implementation or (lambda a, x: a.to_dense() @ x))
        if pull is not None:
            product.natural_rule(tj.AbstractArray)(beside(pull))
        if push is not None:
            product.natural_pushforward(tj.AbstractArray)(beside(push))
        s = Samples(0)
        return product, (tj.Triangular(s.normal(3, 3)), s.normal(3))

    return make


def changed(change):
    """The product with its two cotangents changed."""
    return product(
        lambda a, x: lambda y_bar: change(tj.destructure(tj.Outer(y_bar, x)), a.mT @ y_bar)
    )


def push_by(factor):
    return lambda a, x: lambda da, dx: tj.destructure(da) @ x + factor * (a.to_dense() @ dx)


def impure():
    """A pullback that doubles every second time."""
    calls = itertools.count()

    def pull(a, x):
        factor = 1.0 + next(calls) % 2
        return lambda y_bar: (tj.Outer(factor * y_bar, x), a.mT @ y_bar)

    return product(pull)()


def gauge(hidden):
    """A structured result whose fields a loss can read past the array."""

    @tj.register_array_type
    class Gauge(tj.AbstractArray):
        left: Array
        right: Array

        def to_dense(self):
            return self.left * self.right

    @tj.operation
    def stretch(a, factor):
        return a * factor

    stretch.implementation(Gauge)(lambda a, f: Gauge(a.left * f, a.right))
    rule = lambda a, f: (
        stretch.primal(a, f),
        lambda c: (tj.destructure(c) * f, jnp.sum(tj.destructure(c) * a.to_dense())),
    )
    stretch.natural_rule(Gauge, hidden=hidden)(rule)
    s = Samples(2)
    return stretch, (Gauge(s.normal(2, 2), s.normal()), s.normal())


def logarithm(pull, x=None, **options):
    """A curved entry-wise function of complex or real diagonals, with a rule."""

    def make():
        logarithm = tj.operation(lambda a: jnp.sum(jnp.sin(a) * a))
        logarithm.implementation(tj.Diagonal)(lambda a: jnp.sum(jnp.sin(a.diag) * a.diag))
        rule = lambda a: (logarithm.primal(a), lambda y_bar: tj.Diagonal(pull(a.diag) * y_bar))
        logarithm.natural_rule(tj.Diagonal, **options)(rule)
        return logarithm, (tj.Diagonal(Samples(1).normal(3) if x is None else x),)

    return make


Z = Samples(1).complex(2)
slope = lambda d: jnp.cos(d) * d + jnp.sin(d)


def mean_square(pull):
    """The sum of squares of a symmetric matrix, with a rule."""

    def make():
        square = tj.operation(lambda a: jnp.sum(a * a))
        square.implementation(tj.Symmetric)(lambda a: jnp.sum(a.data * a.data))
        square.natural_rule(tj.Symmetric)(lambda a: (square.primal(a), lambda y: y * pull(a.data)))
        return square, (tj.Symmetric(Samples(3).normal(2, 2)),)

    return make


ORIGINALS = {
    "product": product(),
    "product by a pushforward alone": product(None, push=push_by(1)),
    "AD": product(None),
    "gauge": lambda: gauge("ad"),
    "gauge, hybrid": lambda: gauge("hybrid"),
    "logarithm": logarithm(slope),
    "logarithm, complex": logarithm(slope, Z),
    "logarithm, conjugated": logarithm(lambda d: jnp.conj(slope(d)), Z, convention="chainrules"),
    "mean square": mean_square(lambda d: 2 * d),
}

MUTANTS = {
    "zero map": ("rule", changed(lambda a, x: (0 * a, 0 * x))),
    "scaled by 1.001": ("rule", changed(lambda a, x: (1.001 * a, x))),
    "scaled by 1 + 1e-6": ("rule", changed(lambda a, x: (a, (1 + 1e-6) * x))),
    "transposed": ("rule", changed(lambda a, x: (a.T, x))),
    "doubled diagonal": ("rule", changed(lambda a, x: (a + jnp.diag(jnp.diag(a)), x))),
    "wrong triangle": ("rule", changed(lambda a, x: (jnp.triu(a), x))),
    "dropped argument": ("rule", changed(lambda a, x: (a, None))),
    "dropped matrix": ("rule", changed(lambda a, x: (None, x))),
    "not finite": ("rule", changed(lambda a, x: (a * jnp.nan, x))),
    "reversed": ("(rule|vjp)", changed(lambda a, x: (a, x[::-1]))),
    "impure": ("rule", impure),
    "raises": ("first order", changed(lambda a, x: (a, {}["lost"]))),
    "value": ("value", product(implementation=lambda a, x: 1.001 * (a.to_dense() @ x))),
    "forward mode only": ("rule", product(push=push_by(2))),
    "hidden cotangents dropped": ("fields", lambda: gauge("natural")),
    "missing conjugate": ("rule", logarithm(slope, Z, convention="chainrules")),
    "extra conjugate": ("rule", logarithm(lambda d: jnp.conj(slope(d)), Z)),
    "missing term": ("rule", logarithm(jnp.sin)),
    "off-diagonal factor 2": ("rule", mean_square(lambda d: 4 * d - 2 * jnp.diag(jnp.diag(d)))),
    "only one triangle": ("rule", mean_square(lambda d: 2 * jnp.triu(d))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORIGINALS)
def test_operation_without_a_fault_passes(name):
    op, args = ORIGINALS[name]()
    result = check_operation(op, *args)
    assert result.scalars > 40
    assert result.worst_error < 1e-8
    assert not result.skipped


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name):
    """By the stage that is there for it, with all stages running."""
    stage, make = MUTANTS[name]
    op, args = make()
    with pytest.raises(tj.errors.CheckFailure, match=f": {stage}: "):
        check_operation(op, *args)


def test_message_says_what_where_and_how_far():
    op, args = MUTANTS["scaled by 1.001"][1]()
    with pytest.raises(tj.errors.CheckFailure) as failure:
        check_operation(op, *args)
    text = str(failure.value)
    for part in ("product(Triangular, vector)", "a.data", "expected", "got", "tolerance: 1.0e-08"):
        assert part in text


def test_every_stage_is_needed_by_name():
    op, args = ORIGINALS["product"]()
    with pytest.raises(tj.errors.CheckFailure, match="left out"):
        check_operation(op, *args, modes=("value",))
    rest = tuple(m for m in tj.testing.OPERATION_MODES if m not in ("value", "jvp"))
    result = check_rule(op, *args, skip=rest)
    assert set(result.stages) == {"value", "jvp"}


def test_zero_derivative_must_be_declared():
    """An argument that does not matter checks nothing."""

    @tj.operation
    def first(a, b):
        return jnp.sum(jnp.sin(a)) + 0 * jnp.sum(b)

    first.implementation(tj.Diagonal)(lambda a, b: jnp.sum(jnp.sin(a.to_dense())) + 0 * jnp.sum(b))
    args = tj.Diagonal(Samples(1).normal(3)), Samples(2).normal(2)
    with pytest.raises(tj.errors.CheckFailure, match="is zero"):
        check_operation(first, *args)
    assert check_operation(first, *args, zero=("b",)).scalars > 0
    with pytest.raises(tj.errors.CheckFailure, match="not zero, as declared"):
        check_operation(first, *args, zero=("a", "b"))
    with pytest.raises(ValueError, match="names no argument"):
        check_operation(first, *args, zero=("c",))


def test_integers_and_functions():
    """Arguments without a tangent space are passed on and get none."""

    @tj.operation
    def power(a, n, f):
        return f(a) ** n

    power.implementation(tj.Diagonal)(lambda a, n, f: f(a.to_dense()) ** n)
    power.natural_rule(tj.Diagonal)(
        lambda a, n, f: (
            power.primal(a, n, f),
            lambda c: (c * n * (a.to_dense() + 1.5) ** (n - 1), None, None),
        )
    )
    shift = lambda x: x + 1.5
    assert (
        check_operation(power, tj.Diagonal(Samples(1).normal(3)), jnp.array(3), shift).scalars > 40
    )


def test_special_inputs_are_refused():
    with pytest.raises(tj.errors.CheckFailure, match="all values are equal"):
        check_operation(tj.matmul, tj.Diagonal(jnp.full(2, 0.3)), Samples(0).normal(2))


def test_needs_double_precision_and_an_operation():
    with pytest.raises(ValueError, match="float64"):
        check_operation(tj.trace, tj.Diagonal(jnp.ones(2, "float32")))
    with pytest.raises(TypeError, match="not an operation"):
        check_operation(jnp.sum, jnp.ones(2))


def test_pair_of_modes_that_disagrees_is_reported():
    """Two modes of one map pass; a pair that disagrees does not."""
    s = Samples(4)
    assert check_adjoint(tj.matmul, tj.Diagonal(s.normal(3)), s.normal(3)).scalars == 1

    @jax.custom_jvp
    def wrong(x):
        return jnp.sin(x)

    @wrong.defjvp
    def _(primals, tangents):
        along = jax.custom_derivatives.linear_call(
            lambda r, t: r * t, lambda r, c: 2 * r * c, jnp.cos(primals[0]), tangents[0]
        )
        return jnp.sin(primals[0]), along

    with pytest.raises(tj.errors.CheckFailure, match="adjoint"):
        check_adjoint(wrong, s.normal(3))


def test_reference_takes_static_arguments():
    """Those that it names; one that names none is called on the arrays alone."""

    @tj.operation
    def power(a, x, *, exponent=1):
        return jnp.sum(a @ x) ** exponent

    args = tj.Diagonal(Samples(0).normal(3)), Samples(1).normal(3)
    fast = tuple(m for m in tj.testing.OPERATION_MODES if m not in ("vjp", "value"))
    for reference in (
        lambda a, x, *, exponent: jnp.sum(a @ x) ** exponent,
        lambda a, x: jnp.sum(a @ x) ** 2,
    ):
        report = check_operation(power, *args, exponent=2, reference=reference, skip=fast)
        assert report.scalars > 0


def test_exact_zero():
    """A value that is exactly right where the definition has rounding errors: log |det Q| = 0."""

    @tj.operation
    def volume(a):
        return jnp.linalg.slogdet(a)[1]

    @tj.register_array_type
    class Reflection(tj.AbstractArray):
        v: Array

        def to_dense(self):
            v = self.v
            return jnp.eye(v.shape[0], dtype=v.dtype) - 2 * jnp.outer(v, v) / (v @ v)

    volume.implementation(Reflection)(lambda a: jnp.zeros((), a.v.dtype))
    a = Reflection(Samples(5).normal(3))
    assert check_operation(volume, a, zero=("a",)).scalars > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_right_rule_is_not_refused_for_its_last_bits(seed):
    """XLA fuses two calls of one rule in one program differently."""

    @tj.operation
    def unit(x):
        return x / jnp.sqrt(jnp.sum(x**2))

    @unit.natural_rule
    def unit_rule(x):
        y, length = unit.primal(x), jnp.sqrt(jnp.sum(x**2))
        return y, lambda y_bar: (y_bar - y * jnp.sum(y * y_bar)) / length

    left_out = tuple(m for m in tj.testing.OPERATION_MODES if m != "rule")
    assert check_operation(unit, Samples(seed).normal(4), skip=left_out).stages["rule"].scalars


def test_the_check_of_an_operation_answers_for_variants_of_dense_arguments():
    """Two right-hand sides, for which the pullback is wrong, are none of its arguments."""

    def fits(name, a, x):
        if (len(a.shape), len(x.shape)) != (2, 1):
            raise tj.ShapeError(f"{name}: {a.shape} and {x.shape} do not fit.")

    @tj.operation(check=fits)
    def energy(a, x):
        return x @ (a @ x)

    @energy.natural_rule
    def energy_rule(a, x):
        return energy.primal(a, x), lambda y: (tj.Outer(y * x, x), y * (a @ x + a.mT @ x))

    s = Samples(0)
    assert check_operation(energy, s.normal(3, 3), s.normal(3)).scalars > 40
    with pytest.raises(tj.ShapeError, match="do not fit"):
        energy(s.normal(3, 3), s.normal(3, 2))


def test_failures_name_file_and_line():
    op, args = MUTANTS["scaled by 1.001"][1]()
    with pytest.raises(tj.errors.CheckFailure, match=rf"rule: .*\({re.escape(__file__)}:\d+\)"):
        check_operation(op, *args)
    op, args = MUTANTS["raises"][1]()
    with pytest.raises(
        tj.errors.CheckFailure, match=rf"KeyError: 'lost', from {re.escape(__file__)}:"
    ):
        check_operation(op, *args)
