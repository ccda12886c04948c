"""Determinants of tridiagonal matrices without row exchanges, against exact fractions."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(5)
N = 6


def exact(lower, diag, upper):
    """The determinant, and the matrix of its cofactors, from the leading and trailing minors."""
    lower, diag, upper = ([Fraction(float(x)) for x in field] for field in (lower, diag, upper))

    def minors(diag, coupling):
        out = [Fraction(1)]
        for i, d in enumerate(diag):
            out.append(d * out[-1] - (coupling[i - 1] * out[-2] if i else 0))
        return out

    coupling, n = [x * y for x, y in zip(lower, upper, strict=True)], len(diag)
    first, last = minors(diag, coupling), minors(diag[::-1], coupling[::-1])[::-1]

    def cofactor(i, j):
        beside = lower[j:i] if i > j else upper[i:j]
        between = math.prod((-x for x in beside), start=Fraction(1))
        return between * first[min(i, j)] * last[max(i, j) + 1]

    return first[-1], [[cofactor(i, j) for j in range(n)] for i in range(n)]


def generic():
    return RNG.normal(size=N - 1), RNG.normal(size=N), RNG.normal(size=N - 1)


def integers():
    """Most leading minors are zero, and every second matrix is singular."""
    return tuple(RNG.integers(-1, 2, n).astype(float) for n in (N - 1, N, N - 1))


def zero_diagonal():
    lower, diag, upper = generic()
    return lower, 0 * diag, upper


def nearly_zero_minors():
    lower, diag, upper = generic()
    diag[:3] = 1e-300, 0.0, 1e-17
    return lower, diag, upper


def graded():
    lower, diag, upper = generic()
    return lower, diag * 10.0 ** RNG.integers(-12, 12, N), upper


def tiny():
    return tuple(1e-140 * x for x in integers())


@pytest.mark.parametrize(
    "draw", [generic, integers, zero_diagonal, nearly_zero_minors, graded, tiny]
)
def test_value_sign_and_gradient_are_those_of_the_minors(draw):
    """Of a singular matrix the logarithm is minus infinity and the sign zero, as of a dense one."""
    slogdet = jax.jit(jax.value_and_grad(lambda a: tj.linalg.slogdet(a)[::-1], has_aux=True))
    for _ in range(20):
        lower, diag, upper = draw()
        det, cofactors = exact(lower, diag, upper)
        (logabsdet, sign), bar = slogdet(tj.Tridiagonal(lower, diag, upper))
        assert sign == (det > 0) - (det < 0)
        if det == 0:
            assert logabsdet == -np.inf
            continue
        want = math.log(abs(det.numerator)) - math.log(det.denominator)
        np.testing.assert_allclose(logabsdet, want, rtol=1e-13, atol=1e-12)
        inverse = np.array([[float(x / det) for x in row] for row in cofactors])
        rounding = 1e-11 * np.max(np.abs(inverse))
        for got, k in ((bar.lower, 1), (bar.diag, 0), (bar.upper, -1)):
            np.testing.assert_allclose(got, np.diagonal(inverse, k), rtol=0, atol=rounding)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_few_exponents_hold_pivots_next_to_zero(dtype):
    a = tj.SymTridiagonal(jnp.array([0, 2, 100, 1], dtype), jnp.array([100, 3, 2], dtype))
    want = jnp.linalg.slogdet(tj.destructure(a).astype(float))
    sign, logabsdet = tj.linalg.slogdet(a)
    assert sign.dtype == logabsdet.dtype == dtype
    assert float(sign) == want.sign
    np.testing.assert_allclose(float(logabsdet), want.logabsdet, rtol=float(jnp.finfo(dtype).eps))


def test_entries_far_apart_neither_overflow_nor_vanish():
    a = tj.SymTridiagonal(np.float32([0, 1e30, 0, 1]), np.float32([1e25, 1e-20, 1e20]))
    want = np.linalg.slogdet(np.asarray(tj.destructure(a), float)).logabsdet
    np.testing.assert_allclose(tj.logdet(a), want, rtol=1e-6)


def test_all_orders_of_derivatives_where_leading_minors_are_zero():
    """Each through its own algorithm: pivots, pivots from both ends, row exchanges."""
    matrix = lambda x: tj.SymTridiagonal(x[:4], x[4:])
    own = lambda x: tj.logdet(matrix(x))
    dense = lambda x: jnp.linalg.slogdet(tj.destructure(matrix(x))).logabsdet
    for start in (np.array([0.0, 0, 0, 0, 1, 2, 3]), np.array([1.0, 1, 3, 2, 1, 0.5, 2])):
        for derive in (jax.hessian, lambda f: jax.jacfwd(jax.hessian(f))):
            got, want = derive(own)(start), derive(dense)(start)
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


def test_what_is_no_number_is_not_lost_beside_a_zero():
    one = np.ones(1)
    for lower, upper in ((np.nan * one, 0 * one), (0 * one, np.nan * one)):
        assert np.isnan(tj.logdet(tj.Tridiagonal(lower, np.ones(2), upper)))
    assert np.isnan(tj.logdet(tj.SymTridiagonal(np.array([0.0, np.nan]), 0 * one)))


def test_integers_no_rows_and_batches():
    assert tj.logdet(tj.SymTridiagonal(jnp.array([1, 2, 3]), jnp.array([1, 1]))) == np.log(2.0)
    assert tj.logdet(tj.SymTridiagonal(np.zeros(0), np.zeros(0))) == 0
    diag, off = RNG.normal(size=(3, N)), RNG.normal(size=(3, N - 1))
    batch = tj.SymTridiagonal(diag, off)
    want = np.linalg.slogdet(np.asarray(tj.destructure(batch))).logabsdet
    np.testing.assert_allclose(tj.logdet(batch), want, rtol=1e-10)
