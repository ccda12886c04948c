"""Toeplitz matrices: sums that stay in the type, systems, inverses and determinants.

Products need no implementation of their own: the type multiplies by convolution. Everything else
goes through `factored_toeplitz`, once for a value and its derivatives.
"""

from __future__ import annotations

import jax.numpy as jnp

import tanjax as tj

from .factored_toeplitz import (
    factored_toeplitz,
    inverse_sums,
    slogdet_factored_toeplitz,
    solve_factored_toeplitz,
    solve_factored_toeplitz_transposed,
)

# -- systems ---------------------------------------------------------------------------------------


@tj.solve.natural_rule(tj.Toeplitz, tj.Dense)
def solve_toeplitz_rule(a, b):
    """The general rule, with the inverse found once for both directions."""
    if not a.shape[0]:
        return solve_toeplitz(a, b), lambda x_bar: (None, x_bar)
    f, b = _system(a, b)
    x = solve_factored_toeplitz(f, b)

    def solve_toeplitz_pullback(x_bar):
        w = solve_factored_toeplitz_transposed(f, x_bar)
        return tj.Outer(-w, x), w

    return x, solve_toeplitz_pullback


@tj.solve.implementation(tj.Toeplitz, tj.Dense)
def solve_toeplitz(a, b):
    """`O(n²)` operations and `O(n)` memory, then `O(n log n)` for each column of `b`."""
    if not a.shape[0]:
        return b.astype(jnp.result_type(a.values, b))
    return solve_factored_toeplitz(*_system(a, b))


def _system(a, b):
    """The factored matrix and its right-hand side, of one dtype."""
    dtype = jnp.result_type(a.values, b)
    return factored_toeplitz(a.replace(values=a.values.astype(dtype))), b.astype(dtype)


@tj.inv.implementation(tj.Toeplitz)
def inv_toeplitz(a):
    """Dense, because it is no Toeplitz matrix: `O(n² log n)` operations."""
    return solve_toeplitz(a, jnp.eye(a.shape[0], dtype=a.dtype))


# -- determinants ----------------------------------------------------------------------------------


@tj.logdet.natural_rule(tj.Toeplitz, cotangents=("structural",))
def logdet_toeplitz_rule(a):
    """The cotangent of a value is the sum of the inverse along its diagonal."""
    out, pullback = slogdet_toeplitz_rule(a)
    zero = jnp.zeros_like(out.sign)
    return out.logabsdet, lambda y_bar: pullback(tj.SlogdetResult(zero, y_bar))


@tj.slogdet.natural_rule(tj.Toeplitz, cotangents=("structural",))
def slogdet_toeplitz_rule(a):
    if not a.shape[0]:
        return slogdet_toeplitz(a), lambda bar: a
    f = factored_toeplitz(a)
    out = tj.SlogdetResult(*slogdet_factored_toeplitz(f))
    return out, lambda bar: a.replace(values=weight_of_slogdet(out.sign, bar) * inverse_sums(f))


def weight_of_slogdet(sign, bar):
    """The factor of the inverse transpose: a complex determinant turns its sign, too."""
    weight = bar.logabsdet.astype(sign.dtype)
    if not jnp.iscomplexobj(sign):
        return weight
    return weight - 1j * jnp.real(1j * bar.sign * sign).astype(sign.dtype)


@tj.det.natural_rule(tj.Toeplitz, cotangents=("structural",))
def det_toeplitz_rule(a):
    """By the inverse: nan in the derivative where the matrix is singular."""
    if not a.shape[0]:
        return det_toeplitz(a), lambda y_bar: a
    f = factored_toeplitz(a)
    det = _product(*slogdet_factored_toeplitz(f))
    return det, lambda y_bar: a.replace(values=y_bar * det * inverse_sums(f))


@tj.logdet.implementation(tj.Toeplitz)
def logdet_toeplitz(a):
    return slogdet_toeplitz(a).logabsdet


@tj.slogdet.implementation(tj.Toeplitz)
def slogdet_toeplitz(a):
    """`O(n²)` operations and `O(n)` memory."""
    if not a.shape[0]:
        return tj.SlogdetResult(jnp.ones((), a.dtype), jnp.zeros((), jnp.finfo(a.dtype).dtype))
    return tj.SlogdetResult(*slogdet_factored_toeplitz(factored_toeplitz(a)))


@tj.det.implementation(tj.Toeplitz)
def det_toeplitz(a):
    return _product(*slogdet_toeplitz(a))


def _product(sign, logabsdet):
    return sign * jnp.exp(logabsdet).astype(sign.dtype)


# -- sums ------------------------------------------------------------------------------------------


def _either_order(first, second):
    """Register an addition for both orders of two different types."""

    def register(function):
        def swapped(a, b):
            return function(b, a)

        swapped.__qualname__ = f"{function.__qualname__}_swapped"
        tj.add.implementation(first, second, differentiate=True)(function)
        tj.add.implementation(second, first, differentiate=True)(swapped)
        return function

    return register


@_either_order(tj.Toeplitz, tj.Identity)
def toeplitz_add_identity(a, b):
    return _on_diagonal(a, jnp.ones((), b.dtype))  # definite stays definite


@_either_order(tj.Toeplitz, tj.Fill)
def toeplitz_add_fill(a, b):
    return a.replace(values=a.values + b.value, definite=False)


@_either_order(tj.Toeplitz, tj.Circulant)
def toeplitz_add_circulant(a, b):
    return a.replace(values=a.values + b.to_toeplitz().values, definite=False)


@_either_order(tj.Toeplitz, tj.Scaled)
def toeplitz_add_scaled(a, b):
    if not isinstance(b.matrix, tj.Identity):
        return tj.Sum(a, b)
    return _on_diagonal(a.replace(definite=False), b.factor)


def _on_diagonal(a, number):
    values = a.values.astype(jnp.result_type(a.values, number))
    middle = a.shape[1] - 1
    return a.replace(values=values.at[middle : middle + 1].add(number) if a.size else values)


# -- the diagonal ----------------------------------------------------------------------------------


@tj.diagonal.implementation(tj.Toeplitz, differentiate=True)
def diagonal_toeplitz(a):
    return a.diagonal()


@tj.trace.implementation(tj.Toeplitz, differentiate=True)
def trace_toeplitz(a):
    return jnp.sum(a.diagonal())


# -- cases -----------------------------------------------------------------------------------------


def cases():
    """Rectangles, systems that need row exchanges, definite and complex ones, nothing at all."""
    from tanjax.testing import Case, Samples

    s = Samples(21)
    wide = tj.Toeplitz(s.normal(4), (2, 3))
    general = tj.Toeplitz(s.normal(5).at[2].add(3.0))
    minors = tj.Toeplitz(jnp.array([2.0, 1.0, 0.0, 1.3, 3.0]))  # zeros on its diagonal
    hermitian = tj.Toeplitz.from_column(jnp.array([2.3, 0.7 + 0.3j, -0.4j]), definite=True)
    other = tj.Toeplitz(s.complex(5).at[2].add(3.0))
    for a, b in ((wide, s.normal(3, 2)), (s.normal(2), wide), (other, s.complex(3))):
        yield Case(tj.matmul, a, b)
    for a, b in ((minors, s.normal(3)), (hermitian, s.complex(3, 2)), (other, s.complex(3))):
        yield Case(tj.solve, a, b)
    yield Case(tj.inv, general)
    yield Case(tj.logdet, hermitian)
    yield Case(tj.slogdet, other)
    yield Case(tj.slogdet, minors)
    yield Case(tj.det, other)
    yield Case(tj.trace, wide)
    yield Case(tj.diagonal, wide)
    for a, b in (
        (general, tj.Identity(3)),
        (general, tj.Scaled(tj.Identity(3), s.normal())),
        (wide, tj.Fill(s.normal(), (2, 3))),
        (general, tj.Circulant(s.normal(3))),
    ):
        yield Case(tj.add, a, b)
        yield Case(tj.add, b, a)
    yield from _empty_cases(Case, s)


def _empty_cases(case, s):
    """A matrix without rows: nothing to transform."""
    empty = tj.Toeplitz(s.normal(0))
    yield case(tj.matmul, empty, s.normal(0, 2))
    yield case(tj.solve, empty, s.normal(0))
    yield case(tj.logdet, empty)
