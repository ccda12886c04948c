"""Functions of each entry on structured arrays: what stays zero, and derivatives."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import assert_close
from tanjax import lax
from tanjax.testing import examples_of

pytestmark = pytest.mark.core

SHIPPED = {
    f"{kind.__name__}{i}": x
    for kind in tj.rules.registered_array_types()
    if kind.__module__.startswith("tanjax.")
    for i, x in enumerate(examples_of(kind))
}
FULL = ("Permutation", "Kronecker", "LowRank", "Sum", "Outer", "Masked", "Scaled", "Symmetrised")
KEPT = {k: x for k, x in SHIPPED.items() if not k.startswith(FULL) and x.ndim == 2}

EVERYWHERE = {
    **{n: getattr(tnp, n) for n in ("sin", "tan", "sinh", "tanh", "expm1", "square")},
    "power 3": lambda a: tnp.power(a, 3),
    "abs": tnp.abs,
    "operators": lambda a: abs(a) ** 2,
    "real": tnp.real,
}
OF_REAL = {
    **{n: getattr(tnp, n) for n in ("cbrt", "floor", "ceil", "round", "sign")},
    **{n: getattr(tnp, n) for n in ("arctan", "arcsinh")},
    "maximum": lambda a: tnp.maximum(a, -0.2),
    "minimum": lambda a: tnp.minimum(0.3, a),
    "clip": lambda a: tnp.clip(a, -0.1, 0.2),
    "erf": lambda a: tj.lift(jax.scipy.special.erf)(a),
    "relu": lambda a: tj.lift(lambda x: jax.lax.max(x, 0.0))(a),
    "lax": lambda a: lax.neg(lax.tanh(lax.integer_pow(a, 3))),
}
CUT = {
    **{n: getattr(tnp, n) for n in ("sqrt", "log1p", "arcsin", "arctanh")},
    "power 0.3": lambda a: tnp.power(a, 0.3),
}


def functions(x):
    """What can be compared on an array, on numbers where none is nan."""
    is_complex = jnp.iscomplexobj(tj.destructure(x))
    found = dict(EVERYWHERE)
    if not is_complex:
        found |= OF_REAL
    if not (is_complex and isinstance(x, tj.Hermitian)):
        found |= {k: lambda a, f=f: f(tnp.square(a) / 50) for k, f in CUT.items()}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_values_and_gradients_are_those_of_the_dense_array(name):
    a = KEPT[name]
    chosen = functions(a)

    def loss(read, a):
        total = 0.0
        for i, f in enumerate(chosen.values()):
            out = tj.destructure(f(read(a)))
            weights = jnp.cos(i + jnp.arange(out.size)).reshape(out.shape)
            total += jnp.sum(weights * jnp.real(out)) + jnp.sum(jnp.imag(out) ** 2)
        return total

    with tj.densify("error"):
        for label, f in chosen.items():
            out = f(a)
            assert tj.rules.is_structured(out), label
            assert out.dtype == f(tj.destructure(a)).dtype
            np.testing.assert_allclose(out.to_dense(), f(a.to_dense()), atol=1e-12, err_msg=label)
        if not all(jnp.issubdtype(v.dtype, jnp.inexact) for v in jax.tree.leaves(a)):
            return
        found = jax.jit(jax.grad(lambda a: loss(lambda a: a, a)))(a)
    assert_close(found, jax.jit(jax.grad(lambda a: loss(tj.destructure, a)))(a), 1e-9)


MATRICES = [k for k, x in SHIPPED.items() if x.ndim == 2 and jax.tree.leaves(x)]


@pytest.mark.parametrize("name", MATRICES)
def test_of_each_matrix_of_a_batch(name):
    """Fields that are no arrays of the matrix's shape (a factor) are one for each matrix."""
    pair = lambda v: jnp.stack([v, 1.7 * v]) if jnp.issubdtype(v.dtype, jnp.inexact) else v
    a = jax.tree.map(pair, SHIPPED[name])
    if a.ndim != 3:
        a = jax.tree.map(lambda v: jnp.stack([v, v]), SHIPPED[name])
    functions = (tnp.tanh, tnp.square, lambda a: tnp.maximum(tnp.real(a), -0.1))

    @jax.jit
    def both(a):
        with tj.densify("allow"):
            ours = [tj.destructure(f(a)) for f in functions]
        return ours, [f(tj.destructure(a)) for f in functions]

    for found, expected in zip(*both(a), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["Symmetric", "Hermitian", "Triangular", "Banded"])
def test_second_derivatives_by_tangents_off_the_storage(name):
    """Fields may have tangents that the matrix does not: both orders see the projection."""
    a = KEPT[f"{name}0"]
    t = jax.tree.map(lambda v: jnp.cos(jnp.arange(v.size)).reshape(v.shape).astype(v.dtype), a)

    def curvature(read):
        loss = lambda a: jnp.sum(jnp.real(tj.destructure(tnp.tanh(read(a)) ** 2) * 0.7))
        return jax.jit(lambda a, t: jax.jvp(jax.grad(loss), (a,), (t,))[1])(a, t)

    assert_close(curvature(lambda a: a), curvature(tj.destructure), 1e-10)


def test_slopes_that_are_infinite_at_zero():
    """The places beside a triangle hold zeros that are none of its entries."""
    lower = tj.Triangular(jnp.asarray([[4.0, 0.0], [1.0, 9.0]]))
    slope = jax.grad(lambda a: jnp.sum(tj.destructure(tnp.sqrt(a))))(lower)
    np.testing.assert_allclose(slope.data, [[0.25, 0.0], [0.5, 1 / 6]])
    root, root_dot = jax.jvp(tnp.sqrt, (lower,), (lower,))
    np.testing.assert_allclose(root.data, [[2.0, 0.0], [1.0, 3.0]])
    np.testing.assert_allclose(root_dot.data, [[1.0, 0.0], [0.5, 1.5]])


def test_function_that_is_not_zero_at_zero_becomes_dense():
    d = tj.Diagonal(jnp.asarray([1.0, 2.0]))
    fills = [
        tnp.cos,
        tnp.exp,
        lambda a: tnp.power(a, 0),
        lambda a: tnp.power(a, -1.0),
        lambda a: tnp.maximum(a, 0.5),
        lambda a: tnp.minimum(a, -0.5),
        lambda a: tnp.clip(a, 1.0, 2.0),
        lambda a: tnp.power(2.0, a),
        lambda a: jax.jit(lambda a, y: tnp.power(a, y))(a, 2.0),
    ]
    for fill in fills:
        with tj.densify("error"), pytest.raises(tj.NoRuleError, match="becomes dense"):
            fill(d)
        with tj.densify("allow"):
            np.testing.assert_array_equal(fill(d), fill(d.to_dense()))


def test_a_promise_and_ones_on_a_diagonal_are_not_kept():
    s = tj.Symmetric(jnp.asarray([[4.0, 1.0], [1.0, 3.0]]), definite=True)
    assert not tnp.sin(s).definite
    unit = tj.Triangular(jnp.asarray([[7.0, 0.0], [2.0, 7.0]]), unit_diagonal=True)
    np.testing.assert_allclose(tnp.sin(unit).to_dense(), np.sin([[1.0, 0.0], [2.0, 1.0]]))


def test_a_hermitian_matrix_stays_so_where_the_function_allows():
    h = tj.Hermitian(jnp.asarray([[-1.0, 2.0 - 1j], [2.0 + 1j, 3.0]]))
    with tj.densify("error"):
        assert isinstance(tnp.abs(h), tj.Hermitian)
        with pytest.raises(tj.NoRuleError):
            tnp.sqrt(h)
    with tj.densify("allow"):
        np.testing.assert_allclose(tnp.sqrt(h), np.sqrt(h.to_dense()))


def test_batches_and_nested_types():
    batch = tj.Diagonal(jnp.arange(6.0).reshape(2, 3))
    nested = tj.BlockDiagonal(
        tj.Scaled(tj.Symmetric(jnp.asarray([[1.0, 2.0], [2.0, 0.5]])), -3.0),
        jnp.ones((1, 2)),
        tj.BlockDiagonal(tj.Identity(2), tj.Zero((1, 2))),
    )
    with tj.densify("error"):
        for a in (batch, nested):
            np.testing.assert_allclose(tnp.tanh(a).to_dense(), np.tanh(a.to_dense()), rtol=1e-6)
    with tj.densify("error"), pytest.raises(tj.NoRuleError):
        tnp.tanh(tj.BlockDiagonal(tj.Kronecker(jnp.eye(2), jnp.eye(2)), jnp.eye(2)))


def test_permutations_stay_where_one_stays():
    p = tj.Permutation(jnp.asarray([2, 0, 1]))
    with tj.densify("error"):
        for f in (tnp.abs, tnp.sqrt, tnp.round, lambda p: p**3, lambda p: p**0.5):
            assert isinstance(f(p), tj.Permutation)
            np.testing.assert_array_equal(f(p).to_dense(), p.to_dense())
    with tj.densify("allow"):
        np.testing.assert_array_equal(tnp.arctanh(p), jnp.arctanh(p.to_dense()))  # inf beside 0


def test_functions_of_products_that_are_products_of_functions():
    factors = tj.Diagonal(jnp.asarray([1.0, -2.0])), jnp.asarray([[0.5, -1.0], [2.0, 3.0]])
    a = tj.Kronecker(*factors)
    with tj.densify("error"):
        for f in (tnp.abs, tnp.square, tnp.sign, lambda a: a**3):
            assert isinstance(f(a), tj.Kronecker)
            np.testing.assert_allclose(f(a).to_dense(), f(a.to_dense()))
        with pytest.raises(tj.NoRuleError):
            tnp.sqrt(a)  # of two negative numbers it is not that of their product


def test_means_and_inner_products_form_no_dense_array():
    """Means and inner products, which DESIGN and NumPy count among them, of a large matrix."""
    n = 200_000
    d, v = tj.Diagonal(jnp.full(n, 2.0)), jnp.ones(n)
    with tj.densify("error"):
        assert float(tnp.mean(d)) == pytest.approx(2 / n)
        np.testing.assert_allclose(tnp.mean(d, axis=0)[:2], [2 / n, 2 / n])
        assert float(tnp.vdot(d, d)) == 4 * n
        np.testing.assert_allclose(tnp.diag(d), d.diag)
        np.testing.assert_allclose(tnp.inner(d, v), d.diag)
        penalty = jax.grad(lambda d: jnp.sum(tnp.sum(operator.pow(d, 2))))(d)
    np.testing.assert_allclose(penalty.diag[:2], [4.0, 4.0])
