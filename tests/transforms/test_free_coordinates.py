"""A vector of free numbers: as long as the array has freedom, invertible, with its determinant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

kg, g, m = tj.unit("kg"), tj.unit("g"), tj.unit("m")
A = jnp.array([[3.0, 1.0, 0.5], [1.0, 4.0, 0.2], [0.5, 0.2, 2.0]])
C = jax.lax.complex(A, 0.3 * (jnp.triu(A, 1) - jnp.tril(A, -1)))
SHIPPED = [
    pytest.param(example, id=f"{kind.__name__}-{i}")
    for kind in tj.rules.registered_array_types()
    if issubclass(kind, tj.AbstractArray) and kind.__module__.startswith("tanjax.arrays.types")
    for i, example in enumerate(kind.examples(Samples(0)))
]


def stored(tree):
    """The stored numbers, real and imaginary parts one after the other."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    parts = [p for x in leaves for p in ([x.real, x.imag] if jnp.iscomplexobj(x) else [x])]
    return jnp.concatenate([jnp.ravel(p) for p in parts]) if parts else jnp.zeros(0)


@pytest.mark.parametrize("x", SHIPPED)
def test_free_numbers_are_all_that_the_storage_invariant_leaves(x):
    to_vector, from_vector, log_determinant = tj.tangents.free_coordinates(x)
    v = to_vector(x)
    assert jax.tree.structure(from_vector(v)) == jax.tree.structure(x)
    np.testing.assert_allclose(stored(from_vector(v)), stored(x), rtol=1e-12)
    w = v + 0.1 * jnp.arange(1.0, v.size + 1)
    np.testing.assert_allclose(to_vector(from_vector(w)), w, rtol=1e-12)
    np.testing.assert_allclose(stored(from_vector(w)), stored(from_vector(w).canonical()))
    by_shapes = tj.free_coordinates(jax.eval_shape(lambda: x)).to_vector(x)
    np.testing.assert_array_equal(by_shapes, v)
    if not getattr(x, "definite", False):  # those are stored by a factor
        assert log_determinant(w) == 0.0
    # Any change of the stored numbers that the constructor would keep is one of the free numbers.
    canonical = jax.jacfwd(lambda t: stored(jax.tree.map(jnp.add, x, t).canonical()))
    leaves = jax.tree.leaves(x)
    if leaves and all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
        jacobian = jax.tree.leaves(canonical(jax.tree.map(jnp.zeros_like, x)))
        flat = np.concatenate([np.reshape(j, (j.shape[0], -1)) for j in jacobian], axis=1)
        assert np.linalg.matrix_rank(flat) == v.size


def entries(x):
    """The entries that determine an array: of a Hermitian matrix the upper triangle, and so on."""
    dense = jnp.atleast_1d(tj.destructure(x))
    if type(x) in (tj.Symmetric, tj.Hermitian):
        i, j = np.triu_indices(3)
        dense = dense[..., i, j]
        return (
            jnp.concatenate([dense.real.ravel(), dense.imag[..., i < j].ravel()])
            if (jnp.iscomplexobj(dense))
            else dense.ravel()
        )
    if type(x) is tj.SymTridiagonal:
        return stored(x)
    if type(x) is tj.Triangular:
        return dense[jnp.triu_indices(3)]
    return dense[..., np.arange(3), np.arange(3)].ravel() if type(x) is tj.Diagonal else dense


@pytest.mark.parametrize(
    "x",
    [
        jnp.array([0.3, 2.0]),
        tj.Diagonal(jnp.array([0.3, 2.0, 5.0])),
        tj.Triangular(A, lower=False),
        tj.Symmetric(A),
        tj.Symmetric(A, definite=True),
        tj.Symmetric(jnp.stack([A, 2 * A]), definite=True),
        tj.Hermitian(A),
        tj.Hermitian(C),
        tj.Hermitian(C, definite=True),
        tj.SymTridiagonal(jnp.diag(A), jnp.array([1.0, -0.2])),
        tj.SymTridiagonal(jnp.array([[3.0, 4.0], [2.0, 1.0]]), jnp.ones((2, 1)), definite=True),
    ],
    ids=lambda x: f"{type(x).__name__}{list(x.shape)}{x.dtype}",
)
def test_positive_arrays_by_logarithms_with_the_determinant_of_the_change(x):
    to_vector, from_vector, log_determinant = tj.tangents.free_coordinates(x, positive=True)
    v = to_vector(x)
    np.testing.assert_allclose(entries(from_vector(v)), entries(x), rtol=1e-12)
    jacobian = jax.jacobian(lambda v: entries(from_vector(v)))(v)
    assert jacobian.shape == (v.size, v.size)
    np.testing.assert_allclose(log_determinant(v), jnp.linalg.slogdet(jacobian)[1], rtol=1e-12)
    # Every vector is one: eigenvalues, entries, diagonals are positive.
    far = tj.destructure(from_vector(-3.0 - v))
    positive = far if far.ndim == 1 else jnp.linalg.eigvals(far).real
    assert jnp.all(positive > 0)


def test_promise_of_definiteness_counts_without_positive():
    to_vector, from_vector, log_determinant = tj.tangents.free_coordinates(
        tj.Symmetric(A, definite=True)
    )
    v = to_vector(tj.Symmetric(A))  # the promise is that of `like`
    np.testing.assert_allclose(v[:3], jnp.log(jnp.diag(jnp.linalg.cholesky(A))), rtol=1e-12)
    assert from_vector(v).definite
    assert log_determinant(v) != 0


def test_tree_with_units_batches_and_what_has_no_tangents():
    like = {
        "stiffness": tj.Symmetric(jnp.stack([A, 2 * A])) * kg,
        "noise": jnp.array(0.5) * m,
        "update": tj.LowRankUpdate(tj.Symmetric(A, definite=True), A[:, :1]),
        "order": jnp.array([2, 0, 1]),
        "name": jnp.tanh,
        "half": jnp.ones(2, jnp.float32),
    }
    positive = {**dict.fromkeys(like, False), "noise": True}
    to_vector, from_vector, log_determinant = tj.tangents.free_coordinates(like, positive)
    in_grams = {**like, "stiffness": like["stiffness"].to("g")}
    v = to_vector(in_grams)
    assert v.shape == (12 + 1 + 6 + 3 + 2,)
    assert v.dtype == jnp.float64
    np.testing.assert_allclose(v, to_vector(like), rtol=1e-12)
    back = from_vector(v)
    assert jax.tree.structure(back) == jax.tree.structure(like)
    assert back["order"] is like["order"]
    assert back["half"].dtype == jnp.float32
    np.testing.assert_allclose(back["stiffness"].to_value("kg").data[1], 2 * A, rtol=1e-12)
    np.testing.assert_allclose(back["noise"].to_value("m"), 0.5, rtol=1e-12)
    root = jnp.linalg.cholesky(A)
    change = jnp.log(0.5) + 3 * jnp.log(2) + jnp.log(jnp.diag(root)) @ jnp.array([4.0, 3.0, 2.0])
    np.testing.assert_allclose(log_determinant(v), change, rtol=1e-12)
    samples = jax.jit(jax.vmap(lambda v: from_vector(v)["stiffness"]))(jnp.stack([v, v, v]))
    assert samples.shape == (3, 2, 3, 3)


def test_what_is_not_like_the_maps_is_refused():
    to_vector, from_vector, _ = tj.tangents.free_coordinates({"a": tj.Triangular(A)})
    for other in (tj.Triangular(A, lower=False), tj.Symmetric(A), tj.Triangular(A[:2, :2]), A):
        with pytest.raises(tj.ShapeError, match="not like the one"):
            to_vector({"a": other})
    with pytest.raises(tj.ShapeError, match="must have 6 numbers"):
        from_vector(jnp.ones(7))
    with pytest.raises(tj.UnitError):
        tj.tangents.free_coordinates(tj.Symmetric(A) * kg).to_vector(tj.Symmetric(A) * m)
    for x in (tj.Kronecker(A, A), tj.Banded(A, 1, 1), tj.Diagonal(C[0]), C, tj.Symmetric(C)):
        with pytest.raises(tj.NoRuleError, match="no positive numbers"):
            tj.tangents.free_coordinates({"a": x}, positive={"a": True})


def test_newton_by_free_numbers_meets_a_regular_hessian():
    """A Laplace approximation: the maximum of a Wishart density, and its curvature."""
    _, from_vector, _ = tj.tangents.free_coordinates(tj.Symmetric(A, definite=True))
    loss = lambda v: tj.linalg.pairing(from_vector(v), C.real) - tj.logdet(from_vector(v))
    v = jnp.zeros(6)
    for _ in range(30):
        v = v - jnp.linalg.solve(jax.hessian(loss)(v) + 1e-12 * jnp.eye(6), jax.grad(loss)(v))
    np.testing.assert_allclose(from_vector(v).data, jnp.linalg.inv(C.real), rtol=1e-9)
    assert jnp.linalg.matrix_rank(jax.hessian(loss)(v)) == 6
