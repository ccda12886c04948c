"""A rule in hand: `rrule`, `frule`, `as_custom_vjp`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_close, wave

pytestmark = pytest.mark.core

M = jnp.asarray([[2.0, 0.3], [0.7, 3.0]])


@tj.operation
def weigh(a, x, n, *, power=1):
    return tj.Symmetric((tj.destructure(a) * x) ** power, "mean")


@weigh.natural_rule
def weigh_rule(a, x, n, *, power):
    out = weigh.primal(a, x, n, power=power)
    base = tj.destructure(a) * x

    def weigh_pullback(out_bar):
        inner = out_bar.to_dense() * power * base ** (power - 1)
        return inner * x, jnp.sum(inner * tj.destructure(a)), None

    return out, weigh_pullback


def test_rrule_gives_structural_cotangents_like_jax_vjp():
    a, x, n = tj.Symmetric(M), jnp.asarray(1.5), jnp.asarray(2)
    out, pullback = tj.rules.rrule(weigh, a, x, n, power=3)
    seed = tj.Symmetric(M + 1, "mean")
    want, reference = jax.vjp(lambda a, x: weigh.primal(a, x, n, power=3), a, x)
    assert_close(out, want)
    a_bar, x_bar, n_bar = pullback(seed)
    assert_close((a_bar, x_bar), reference(seed))
    assert n_bar.dtype == jax.dtypes.float0


def test_frule_gives_structural_tangents_like_jax_jvp():
    a, x, n = tj.Symmetric(M), jnp.asarray(1.5), jnp.asarray(2)
    tangents = (tj.Symmetric(M - 1, "mean"), jnp.asarray(0.3), tj.tangents.zero_tangent(n))
    got = tj.rules.frule(weigh, (a, x, n), tangents, power=2)
    want = jax.jvp(lambda a, x: weigh.primal(a, x, n, power=2), (a, x), tangents[:2])
    assert_close(got, want)


def test_plain_functions_and_operations_without_a_rule_are_differentiated_by_ad():
    product = lambda a, b, *, s: s * (a @ b)
    out, pullback = tj.rules.rrule(product, M, M, s=2.0)
    assert_close(out, 2 * M @ M)
    assert_close(pullback(M), (2 * M @ M.T, 2 * M.T @ M))
    assert_close(tj.rules.frule(product, (M, M), (M, M), s=2.0)[1], 4 * M @ M)
    total = tj.operation(lambda a: a.total())
    assert_close(
        tj.rules.rrule(total, tj.Fill(2.0, (2, 2)))[1](jnp.asarray(1.0)), (tj.Fill(4.0, (2, 2)),)
    )


def test_a_rule_with_an_over_parametrised_output_is_replaced_by_ad():
    grow = tj.operation(lambda a: tj.Scaled(a.matrix, 2 * a.factor))
    grow.natural_rule(lambda a: (grow.primal(a), lambda bar: 1000 * tj.destructure(bar)))
    a = tj.Scaled(M, 1.5)
    seed = wave(a)
    assert_close(
        tj.rules.rrule(grow, a)[1](seed), (a.replace(matrix=seed.matrix, factor=2 * seed.factor),)
    )


def test_as_custom_vjp_is_reverse_mode_only():
    f = tj.rules.as_custom_vjp(weigh, power=2)
    a, x, n = tj.Symmetric(M), jnp.asarray(1.5), jnp.asarray(2)
    loss = lambda w: lambda a, x, n: jnp.sum(jnp.sin(tj.destructure(w(a, x, n))))
    got = jax.jit(jax.grad(loss(f), (0, 1)))(a, x, n)
    want = jax.grad(loss(lambda *args: weigh.primal(*args, power=2)), (0, 1))(a, x, n)
    assert_close(got, want)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda a: f(a, x, n), (a,), (a,))


def test_a_rule_gets_arrays_of_jax_where_numpys_are_handed_in():
    """Cotangents, tangents and arguments: a rule may write `.at[0].set(...)`."""
    first = tj.operation(lambda x: x[0] * x)

    @first.natural_rule
    def first_rule(x):
        pull = lambda y_bar: (x[0] * y_bar).at[0].add(jnp.sum(x.at[:].get() * y_bar))
        return first.primal(x), pull

    first.natural_pushforward(lambda x: (x[0] * x, lambda t: t.at[0].get() * x + x[0] * t))
    x, v = np.array([2.0, 0.5, 3.0]), np.array([1.0, -1.0, 0.25])
    assert_close(tj.rules.rrule(first, x)[1](v), (jnp.asarray(x[0] * v).at[0].add(x @ v),))
    assert_close(tj.rules.frule(first, (x,), (v,))[1], v[0] * x + x[0] * v)
