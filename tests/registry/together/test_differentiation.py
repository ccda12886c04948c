"""Who differentiates a call: a rule, a pushforward, or AD of the implementation."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from comparisons import Counter, assert_close, assert_same_derivatives

pytestmark = pytest.mark.core


def diagonal(*values):
    return tj.Diagonal(jnp.asarray(values, float))


A, X = (2.0, 3.0, 0.5), jnp.asarray([1.0, -2.0, 0.7])


def opted(choice):
    """An operation whose rule says ten times the gradient, so that one sees which path ran."""

    @tj.operation
    def total(a):
        ran("generic")
        return a.total()

    @total.implementation(tj.Diagonal, differentiate=choice == "differentiate")
    def total_diagonal(a):
        ran("diagonal")
        return jnp.sum(a.diag)

    @total.natural_rule
    def total_rule(a):
        return total.primal(a), lambda y_bar: tj.Fill(10 * y_bar, a.shape)

    if choice == "opt_out":
        total.opt_out(tj.Diagonal)
    return total


def ran(name):
    PATHS.append(name)


PATHS = []


@pytest.mark.parametrize(("choice", "factor"), [("rule", 10), ("differentiate", 1), ("opt_out", 1)])
def test_option_decides_whether_a_rule_or_ad_differentiates_a_call(choice, factor):
    PATHS.clear()
    total = opted(choice)
    assert_close(jax.grad(total)(diagonal(*A)), tj.Diagonal(jnp.full(3, 1.0 * factor)))
    assert set(PATHS) == {"diagonal"}
    # other types keep the rule, whatever diagonals do
    assert_close(jax.grad(total)(tj.Fill(2.0, (2, 2))), tj.Fill(40.0, (2, 2)))
    assert set(PATHS) == {"diagonal", "generic"}
    moved = jax.jvp(total, (diagonal(*A),), (diagonal(1.0, 1.0, 1.0),))[1]
    assert moved == 3 * factor


def test_a_more_specific_rule_beats_an_implementation_that_differentiates_itself():
    @tj.operation
    def total(a, b):
        return a.total() * jnp.sum(b)

    total.implementation(tj.Diagonal, differentiate=True)(lambda a, b: jnp.sum(a.diag) * jnp.sum(b))

    @total.natural_rule(tj.Diagonal, tj.Dense)
    def total_rule(a, b):
        return total.primal(a, b), lambda y_bar: (tj.Fill(7 * y_bar, a.shape), None)

    assert_close(jax.grad(total)(diagonal(*A), X), tj.Diagonal(jnp.full(3, 7.0)))


def pushed(*, with_rule):
    @tj.operation
    def cube(a):
        return tj.Diagonal(a.diag**3)

    @cube.natural_pushforward
    def cube_push(a):
        return cube.primal(a), lambda a_dot: tj.Diagonal(3 * a.diag**2 * a_dot.diagonal())

    if with_rule:

        @cube.natural_rule
        def cube_rule(a):
            used()
            return cube.primal(a), lambda bar: tj.Diagonal(3 * a.diag**2 * bar.diagonal())

    return cube


used = Counter()


@pytest.mark.parametrize("lowering", ["linear", "public"])
@pytest.mark.parametrize("with_rule", [False, True])
def test_a_natural_pushforward_alone_and_beside_a_rule(lowering, with_rule):
    before = used.count
    with tj.rules.lowering(lowering):
        cube = pushed(with_rule=with_rule)
        assert_same_derivatives(cube, lambda a: jnp.diag(jnp.diag(a) ** 3), diagonal(*A))
    assert (used.count > before) == with_rule


def test_forward_mode_runs_the_pushforward_and_reverse_mode_the_rule():
    cube = pushed(with_rule=False)
    double = tj.operation(lambda a: tj.Diagonal(2 * a.diag))
    double.natural_pushforward(lambda a: (double.primal(a), lambda t: tj.Diagonal(30 * t.diag)))
    double.natural_rule(lambda a: (double.primal(a), lambda t: tj.Diagonal(500 * t.diag)))
    a, one = diagonal(*A), diagonal(1.0, 1.0, 1.0)
    assert_close(jax.jvp(double, (a,), (one,))[1], tj.Diagonal(jnp.full(3, 30.0)))
    assert_close(tj.rules.frule(double, (a,), (one,))[1], tj.Diagonal(jnp.full(3, 30.0)))
    assert_close(jax.vjp(double, a)[1](one)[0], tj.Diagonal(jnp.full(3, 500.0)))
    assert_close(jax.vjp(cube, a)[1](one)[0], tj.Diagonal(3 * a.diag**2))


def test_an_implementation_that_differentiates_itself_beats_a_rule_of_its_signature():
    total = opted("differentiate")
    total.natural_rule(tj.Diagonal)(
        lambda a: (total.primal(a), lambda y_bar: tj.Fill(7 * y_bar, a.shape))
    )
    assert_close(jax.grad(total)(diagonal(*A)), tj.Diagonal(jnp.ones(3)))
