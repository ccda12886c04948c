"""Sparse matrices of SciPy: formats and types, what is stored, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import tanjax as tj
from tanjax.bridges.scipy import from_scipy, to_scipy

RNG = np.random.default_rng(5)
THREE = ([1.0, 2.0], [3.0, 0.0, 5.0], [0.0, 7.0])
KINDS = {
    "Diagonal": (lambda: tj.Diagonal([1.0, 0.0, 3.0]), "dia"),
    "Tridiagonal": (lambda: tj.Tridiagonal(*THREE), "dia"),
    "SymTridiagonal": (lambda: tj.SymTridiagonal(THREE[1], THREE[2]), "dia"),
    "Banded": (lambda: tj.Banded(RNG.normal(size=(4, 5)), 1, 2), "dia"),
    "Permutation": (lambda: tj.Permutation([2, 0, 1]), "csr"),
    "Sparse": (lambda: tj.Sparse([1.0, 0.0, 2j], [[2, 1], [0, 3], [0, 0]], (3, 4)), "csr"),
}


@pytest.mark.parametrize("name", KINDS)
def test_there_and_back(name):
    make, form = KINDS[name]
    matrix = make()
    there = to_scipy(matrix)
    assert (there.format, there.dtype) == (form, matrix.dtype)
    np.testing.assert_array_equal(there.toarray(), matrix.to_dense())
    back = from_scipy(there, getattr(tj, name))
    assert jax.tree.structure(back) == jax.tree.structure(matrix)  # the pattern, and the widths
    jax.tree.map(np.testing.assert_array_equal, back, matrix)
    if name not in ("SymTridiagonal", "Permutation"):
        assert type(from_scipy(there)) is type(matrix)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_every_scipy_format_becomes_a_sparse_array(form):
    matrix = scipy.sparse.random(6, 4, 0.3, form, rng=np.random.default_rng(1))
    a = from_scipy(matrix)
    assert (type(a), a.nnz) == (tj.Sparse, matrix.nnz)
    np.testing.assert_array_equal(a.to_dense(), matrix.toarray())
    b = RNG.normal(size=4)
    np.testing.assert_allclose(a @ jnp.asarray(b), matrix @ b)


def test_duplicates_are_added_and_old_matrices_taken():
    matrix = scipy.sparse.coo_matrix(([1.0, 2.0], ([1, 1], [0, 0])), (2, 2))
    np.testing.assert_array_equal(from_scipy(matrix).to_dense(), [[0, 0], [3, 0]])
    assert from_scipy(matrix, tj.Banded).lower == 1


def test_diagonals_outside_of_the_matrix():
    wide = scipy.sparse.dia_array((np.ones((2, 4)), [0, 2]), (3, 4))
    np.testing.assert_array_equal(from_scipy(wide).to_dense(), wide.toarray())
    far = scipy.sparse.dia_array((np.ones((2, 2)), [0, -5]), (2, 2))
    np.testing.assert_array_equal(from_scipy(far).to_dense(), np.eye(2))


def test_composite_arrays_become_scipy_matrices():
    s, d = KINDS["Sparse"][0](), tj.Diagonal([1.0 + 1j, 2.0])
    for x in (tj.Kronecker(s, d), tj.BlockDiagonal(d, s), tj.Identity(3), tj.Zero((2, 3))):
        np.testing.assert_array_equal(to_scipy(x).toarray(), x.to_dense())
    np.testing.assert_array_equal(to_scipy(np.eye(2)).toarray(), np.eye(2))


MISTAKES = {
    "unit": (lambda: to_scipy(tj.Diagonal([1.0]) * tj.unit("m")), tj.UnitError, "cannot be in m"),
    "full": (lambda: to_scipy(tj.LowRank([[1.0]], [[1.0]])), tj.NoRuleError, "no sparse format"),
    "traced": (lambda: jax.jit(to_scipy)(tj.Diagonal([1.0])), tj.NoRuleError, "needs numbers"),
    "no matrix": (lambda: from_scipy(np.eye(2)), tj.ShapeError, "needs a sparse matrix"),
    "kind": (lambda: from_scipy(to_scipy(np.eye(2)), tj.Toeplitz), tj.ShapeError, "`kind` must"),
    "wide": (lambda: from_scipy(to_scipy(np.ones((1, 2))), tj.Banded), tj.ShapeError, "not square"),
    "band": (lambda: from_scipy(to_scipy(np.ones((3, 3))), tj.Tridiagonal), tj.ShapeError, "2 dia"),
    "diagonal": (lambda: from_scipy(to_scipy(np.ones((2, 2))), tj.Diagonal), tj.ShapeError, "1 di"),
    "symmetric": (
        lambda: from_scipy(to_scipy(tj.Tridiagonal(*THREE)), tj.SymTridiagonal),
        tj.ShapeError,
        "not symmetric",
    ),
    "permutation": (
        lambda: from_scipy(to_scipy(np.ones((2, 2))), tj.Permutation),
        tj.ShapeError,
        "single one",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    make, error, match = MISTAKES[mistake]
    with pytest.raises(error, match=match):
        make()
