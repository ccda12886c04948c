"""What follows from the factors of each structured type, without an n-by-n array, in all modes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import tanjax as tj
from tanjax.testing import Samples

S = Samples(31)
N = 6
A, B = tj.Symmetric(S.definite(2), definite=True), tj.Symmetric(S.definite(3), definite=True)
COLUMN = jnp.array([3.0, 0.5, 0.2, 0.1, 0.2, 0.5])
CIRCULANT = tj.Circulant(COLUMN)
TOEPLITZ = tj.Toeplitz(S.normal(11).at[5].add(6.0))
SHIFTED = tj.Kronecker(A, B) + 0.3 * tj.Identity(N)
HERMITIAN = tj.Hermitian(S.definite(2, complex=True), definite=True)
THIN = S.normal(N, 2)
COLUMNS, Z = S.normal(N, 2), S.normal(N, 2)

# Types that have a root, and those that have none.
TYPES = {
    "Diagonal": tj.Diagonal(S.positive(N)),
    "complex Diagonal": tj.Diagonal(S.positive(N).astype(complex)),
    "Circulant": CIRCULANT,
    "complex Circulant": tj.Circulant(jnp.array([3.0, 0.5 + 0.3j, 0.5 - 0.3j])),
    "SymTridiagonal": tj.SymTridiagonal(3 + S.positive(N), S.normal(N - 1)),
    "Tridiagonal": tj.Tridiagonal(
        jnp.full(5, 0.3j), (3 + S.positive(N)).astype(complex), jnp.full(5, -0.3j)
    ),
    "Banded": tj.Banded(jnp.ones((5, N)).at[2].set(5.0), 2, 2),
    "Kronecker": tj.Kronecker(A, tj.Diagonal(S.positive(3))),
    "shifted": SHIFTED,
    "shifted, complex": tj.Kronecker(HERMITIAN, B) + 0.3 * tj.Identity(N),
    "shifted, one Diagonal": tj.Kronecker(A, tj.Diagonal(S.positive(3))) + 0.3 * tj.Identity(N),
    "uneven": tj.Kronecker(A, B) + tj.Kronecker(tj.Diagonal(S.positive(2)), tj.Identity(3)),
    "definite SymTridiagonal": tj.SymTridiagonal(3 + S.positive(N), S.normal(N - 1) / 2, True),
    "KroneckerSum": tj.KroneckerSum(A, tj.SymTridiagonal(jnp.full(3, 2.0), -jnp.ones(2))),
    "Laplacian": tj.Kronecker(A, tj.Identity(3)) + tj.Kronecker(tj.Identity(2), B),
    "update": tj.LowRankUpdate(tj.Diagonal(5 + S.positive(N)), THIN, jnp.array([2.0, -0.1])),
    "update of SymTridiagonal": tj.LowRankUpdate(
        tj.SymTridiagonal(3 + S.positive(N), S.normal(5)), THIN
    ),
    "update of shifted": tj.LowRankUpdate(SHIFTED, THIN),
    "BlockDiagonal": tj.BlockDiagonal(A, tj.Circulant(jnp.array([3.0, 0.5])), HERMITIAN),
    "Scaled": tj.Scaled(CIRCULANT, jnp.asarray(2.0)),
}
ROOTLESS = {
    "Toeplitz": TOEPLITZ,
    "complex Toeplitz": tj.Toeplitz(S.complex(11).at[5].add(6.0)),
    "update of Toeplitz": tj.LowRankUpdate(TOEPLITZ, THIN),
    "update with v": tj.LowRankUpdate(tj.Diagonal(S.positive(N)), THIN, None, 0.1 * THIN),
    "Triangular": tj.Triangular(S.regular(N)),
    "not definite": tj.Symmetric(S.definite(N)),
    "Kronecker of dense": tj.Kronecker(S.regular(2), S.regular(3)),
}


def ours(a, b, z):
    """What a factorization tells; of a root, what does not depend on which one it is."""
    f = tj.factorize(a)
    told = [f.solve(b), f.solve(b, transposed=True), *f.slogdet(), f.diagonal_of_inverse()]
    return [*told, f.inv_quad(b), f.root() @ (f.root().H @ z)] if f.has_root else told


def literally(a, b, z, *, has_root):
    dense = tj.destructure(a)
    x = jnp.linalg.solve(dense, b)
    told = [x, jnp.linalg.solve(dense.T, b), *jnp.linalg.slogdet(dense)]
    told.append(jnp.diagonal(jnp.linalg.inv(dense)))
    hermitian = (dense + dense.conj().T) / 2  # all that a root sees of a general matrix
    return [*told, jnp.sum(b * x), hermitian @ z] if has_root else told


def columns(a):
    n = a.shape[0]
    return COLUMNS[:n], Z[:n]


def scalar(function, tree, b, z):
    """A loss by the fields: what is asked of each entry differs, and is not linear."""
    weights = iter(range(1, 99))
    total = 0.0
    for x in function(tree, b, z):
        at = jnp.cos(jnp.arange(jnp.size(x)) + next(weights)).reshape(jnp.shape(x))
        total = total + jnp.sum(jnp.sin(jnp.real(x) + jnp.imag(x)) * at)
    return total


@jax.numpy_dtype_promotion("standard")
@pytest.mark.parametrize("kind", [*TYPES, *ROOTLESS])
def test_values_and_gradients_form_no_matrix(kind):
    a = {**TYPES, **ROOTLESS}[kind]
    b, z = columns(a)
    assert tj.factorize(a).has_root == (kind in TYPES)
    plain = functools.partial(literally, has_root=kind in TYPES)
    with tj.densify("error"):
        for got, want in zip(ours(a, b, z), plain(a, b, z), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)
        got = jax.jit(jax.grad(lambda a: scalar(ours, a, b, z)))(a)
    want = jax.grad(lambda a: scalar(plain, a, b, z))(a)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")
@pytest.mark.parametrize(
    "kind",
    [
        "Circulant",
        "Tridiagonal",
        "shifted, complex",
        "uneven",
        "KroneckerSum",
        "update",
        "Toeplitz",
    ],
)
def test_other_modes_and_second_derivatives(kind):
    a = {**TYPES, **ROOTLESS}[kind]
    b, z = columns(a)
    plain = functools.partial(literally, has_root=kind in TYPES)
    leaves, tree = jax.tree.flatten(a)
    flat, back = ravel_pytree([jnp.stack([x.real, x.imag]) for x in leaves])

    def of(function):
        def loss(v):
            parts = [
                x[0] if jnp.isrealobj(old) else jax.lax.complex(*x)
                for x, old in zip(back(v), leaves, strict=True)
            ]
            given = jax.tree.unflatten(tree, parts)
            return scalar(function, given, b, z)

        return loss

    def looped(f):
        step = jax.checkpoint(lambda total, v: (total + f(v), None))
        return lambda vs: jax.lax.scan(step, jnp.zeros(()), vs)[0]

    for change in (
        jax.hessian,
        lambda f: jax.jacrev(jax.grad(f)),
        lambda f: lambda v: jax.vmap(jax.grad(f))(jnp.stack([v, v * 1.01])),
        lambda f: lambda v: jax.grad(looped(f))(jnp.stack([v, v * 1.01])),
    ):
        got, want = (jax.jit(change(of(f)))(flat) for f in (ours, plain))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


@jax.numpy_dtype_promotion("standard")
@pytest.mark.parametrize("kind", TYPES)
def test_roots_are_square_and_differentiable_by_themselves(kind):
    """A sample, along one direction of the fields, against differences."""
    a = TYPES[kind]
    _, z = columns(a)
    stays_hermitian = jax.tree.map(lambda x: x * (1 + 0.1 * jnp.cos(jnp.abs(x))), a).canonical()

    @jax.jit
    def sample(t):
        moved = jax.tree.map(lambda x, y: x + t.astype(x.dtype) * y, a, stays_hermitian)
        return tj.factorize(moved).root() @ z

    step, start = jnp.array(1e-5), jnp.array(0.0)
    want = (sample(step) - sample(-step)) / (2 * step)
    np.testing.assert_allclose(
        jax.jvp(sample, (start,), (start + 1,))[1], want, rtol=1e-6, atol=1e-7
    )
    root = tj.factorize(a).root()
    assert root.shape == a.shape
    eye = jnp.eye(a.shape[0])
    np.testing.assert_allclose((root @ eye).conj().T, root.H @ eye, atol=1e-12)


def test_a_matrix_without_a_root_gives_nan_and_a_type_without_one_an_error():
    for kind in ROOTLESS:
        with pytest.raises(tj.ShapeError, match="no root"):
            tj.factorize(ROOTLESS[kind]).root()
    for a in (
        tj.Circulant(COLUMN.at[1].add(0.1)),  # not symmetric
        tj.Banded(jnp.ones((3, N)).at[0].set(1.1).at[1].set(5.0), 1, 1),
        tj.Diagonal(jnp.array([1.0, -1.0])),
        tj.SymTridiagonal(jnp.ones(3), jnp.full(2, 2.0)),  # not definite
        tj.Kronecker(A, B) - 100 * tj.Identity(N),
    ):
        assert bool(jnp.isnan(tj.factorize(a).root() @ jnp.ones(a.shape[0])).any()), a
    with pytest.raises(tj.ShapeError, match="does not fit"):
        tj.factorize(SHIFTED).root() @ jnp.ones(N + 1)


def test_uneven_noise_that_is_not_positive_gives_nan():
    noise = tj.Kronecker(tj.Diagonal(jnp.array([1.0, -0.5])), tj.Identity(3))
    a = tj.Kronecker(A, B) + noise
    assert bool(jnp.isnan(tj.solve(a, jnp.ones(N))).all())
    np.testing.assert_allclose(a @ tj.solve(a.to_dense(), jnp.ones(N)), jnp.ones(N), rtol=1e-9)


def test_quantities_batches_and_narrow_numbers():
    metre = tj.unit("m")
    f = tj.factorize(SHIFTED * metre**2)
    plain = tj.factorize(SHIFTED)
    sample = (f.root() @ Z).to_value("m")
    np.testing.assert_allclose(sample, plain.root() @ Z)
    np.testing.assert_allclose(
        f.diagonal_of_inverse().to_value("m**-2"), plain.diagonal_of_inverse()
    )
    batch = jax.vmap(tj.Circulant)(jnp.stack([COLUMN, 2 * COLUMN]))
    both = tj.factorize(batch)
    np.testing.assert_allclose(
        both.diagonal_of_inverse(), jnp.diagonal(jnp.linalg.inv(batch.to_dense()), 0, 1, 2)
    )
    root = both.root() @ jnp.broadcast_to(jnp.eye(N), (2, N, N))
    np.testing.assert_allclose(root @ root.mT, batch.to_dense(), atol=1e-12)
    for kind in ("Toeplitz", "KroneckerSum", "Banded", "update"):
        a = jax.tree.map(lambda x: x.astype(jnp.float32), {**TYPES, **ROOTLESS}[kind])
        got = tj.factorize(a).diagonal_of_inverse()
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, jnp.diagonal(jnp.linalg.inv(a.to_dense())), rtol=1e-4)


@pytest.mark.parametrize("n", [0, 1])
def test_matrices_of_no_and_of_one_row(n):
    for a in (
        tj.Toeplitz(jnp.full(2 * n - 1 if n else 0, 4.0)),
        tj.Circulant(jnp.full(n, 4.0)),
        tj.SymTridiagonal(jnp.full(n, 4.0), jnp.zeros(max(n - 1, 0))),
        tj.KroneckerSum(tj.Symmetric(2 * jnp.eye(n)), tj.Symmetric(2 * jnp.eye(1))),
        tj.LowRankUpdate(tj.Diagonal(jnp.full(n, 3.0)), jnp.ones((n, 1))),
    ):
        f = tj.factorize(a)
        np.testing.assert_allclose(f.solve(jnp.ones(n)), jnp.full(n, 0.25))
        np.testing.assert_allclose(f.logdet(), n * np.log(4.0), atol=1e-12)
        np.testing.assert_allclose(f.diagonal_of_inverse(), jnp.full(n, 0.25))
        if f.has_root:
            np.testing.assert_allclose(f.root() @ jnp.ones(n), jnp.full(n, 2.0))
