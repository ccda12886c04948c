"""What the constructors of array types accept, canonicalise and refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.experimental.sparse import BCOO

import tanjax as tj
from comparisons import assert_close

M = [[1.0, 2.0], [3.0, 4.0]]
C = [[1.0 + 1j, 2.0 + 1j], [3.0, 4.0 - 2j]]
JUNK = np.random.default_rng(0).normal(size=(4, 5))  # bands with numbers in the corners
EYE = tj.Identity(2)


def of_bands(bands, lower, upper):
    """The definition of `scipy.linalg.solve_banded`, entry by entry."""
    n = bands.shape[1]
    inside = lambda i, j: -upper <= i - j <= lower
    return [[bands[upper + i - j, j] if inside(i, j) else 0.0 for j in range(n)] for i in range(n)]


ARRAYS = [
    (tj.Diagonal([1.0, 2.0]), [[1, 0], [0, 2]]),
    (tj.Symmetric(M), [[1, 2], [2, 4]]),
    (tj.Symmetric(M, "L"), [[1, 3], [3, 4]]),
    (tj.Symmetric(M, uplo="mean"), [[1, 2.5], [2.5, 4]]),
    (tj.Symmetric(C), [[1 + 1j, 2 + 1j], [2 + 1j, 4 - 2j]]),
    (tj.Symmetric(tj.Symmetric(M), "L"), [[1, 2], [2, 4]]),
    (tj.Hermitian(C), [[1, 2 + 1j], [2 - 1j, 4]]),
    (tj.Hermitian(C, "L"), [[1, 3], [3, 4]]),
    (tj.Hermitian(C, "mean"), [[1, 2.5 + 0.5j], [2.5 - 0.5j, 4]]),
    (tj.Hermitian(M), [[1, 2], [2, 4]]),
    (tj.Triangular(M), [[1, 0], [3, 4]]),
    (tj.Triangular(M, lower=False), [[1, 2], [0, 4]]),
    (tj.Triangular(M, unit_diagonal=True), [[1, 0], [3, 1]]),
    (tj.Triangular(M, False, True), [[1, 2], [0, 1]]),
    (tj.Scaled(jnp.asarray(M), 2), [[2, 4], [6, 8]]),
    (tj.Scaled(tj.Diagonal([1.0, 2.0]), 0.5), [[0.5, 0], [0, 1]]),
    (tj.Fill(3, (2, 3)), [[3, 3, 3], [3, 3, 3]]),
    (tj.Fill(1.5, 2), [1.5, 1.5]),
    (tj.Fill(1.5, ()), 1.5),
    (tj.Fill(1.0, (0, 3)), np.zeros((0, 3))),
    (EYE, [[1, 0], [0, 1]]),
    (tj.Zero((1, 2)), [[0, 0]]),
    (tj.Outer([1.0, 2.0], [3.0, 4.0]), [[3, 4], [6, 8]]),
    (tj.tangents.Masked(jnp.asarray(M), "strictly_lower"), [[0, 0], [3, 0]]),
    (tj.tangents.Sum(jnp.asarray(M), EYE), [[2, 2], [3, 5]]),
    (tj.LowRank([[1.0], [2.0]], [[3.0], [4.0]]), [[3, 4], [6, 8]]),
    (tj.LowRank(np.zeros((2, 0)), np.zeros((2, 0))), np.zeros((2, 2))),
    (tj.LowRankUpdate(EYE, [[1.0], [2.0]], [10.0]), [[11, 20], [20, 41]]),
    (tj.LowRankUpdate(EYE, [[1.0], [2.0]], None, [[3.0], [4.0]]), [[4, 4], [6, 9]]),
    (tj.Kronecker(M, [[1.0, 10.0]]), [[1, 10, 2, 20], [3, 30, 4, 40]]),
    (tj.Kronecker(M), M),
    (tj.BlockDiagonal(tj.Diagonal([7.0]), [[1.0, 2.0]]), [[7, 0, 0], [0, 1, 2]]),
    (
        tj.Scaled(tj.BlockDiagonal(tj.Symmetric(M), tj.Kronecker(EYE, M)), 2.0),
        2 * scipy.linalg.block_diag([[1, 2], [2, 4]], M, M),
    ),
    (tj.Tridiagonal([1.0, 2.0], [4.0, 5, 6], [7.0, 8]), [[4, 7, 0], [1, 5, 8], [0, 2, 6]]),
    (tj.SymTridiagonal([4.0, 5, 6], [7.0, 8]), [[4, 7, 0], [7, 5, 8], [0, 8, 6]]),
    (tj.Banded(JUNK, 1, 2), of_bands(JUNK, 1, 2)),
    (tj.Banded(JUNK[:, :2], 3, 0), of_bands(JUNK[:, :2], 3, 0)),
    (tj.Banded(JUNK[:, :1], 0, 3), of_bands(JUNK[:, :1], 0, 3)),
    (tj.Banded(JUNK[:, :0], 2, 1), np.zeros((0, 0))),
    (tj.Toeplitz([3.0, 2, 1, 5, 7]), [[1, 2, 3], [5, 1, 2], [7, 5, 1]]),
    (tj.Toeplitz([3.0, 2, 1, 5, 7], (2, 4)), [[5, 1, 2, 3], [7, 5, 1, 2]]),
    (tj.Toeplitz([3.0, 2, 1, 5, 7], (4, 2)), [[2, 3], [1, 2], [5, 1], [7, 5]]),
    (tj.Toeplitz([3.0, 2, 1, 5, 7], (1, 5)), [[7, 5, 1, 2, 3]]),
    (tj.Toeplitz([4.0]), [[4]]),
    (tj.Toeplitz([]), np.zeros((0, 0))),
    (tj.Toeplitz([], (0, 3)), np.zeros((0, 3))),
    (tj.Toeplitz([], (3, 0)), np.zeros((3, 0))),
    (tj.Toeplitz.from_column([1.0, 2j, 3], [9.0, 4j]), [[1, 4j], [2j, 1], [3, 2j]]),
    (tj.Toeplitz.from_column([1.0, 2j]), [[1, -2j], [2j, 1]]),
    (tj.Toeplitz.from_column(jnp.ones(0)), np.zeros((0, 0))),
    (tj.Toeplitz.from_column(jnp.ones(0), jnp.ones(3)), np.zeros((0, 3))),
    (tj.Circulant([1.0, 2, 3]), [[1, 3, 2], [2, 1, 3], [3, 2, 1]]),
    (tj.Circulant([1.0, 2]), [[1, 2], [2, 1]]),
    (tj.Circulant([4.0]), [[4]]),
    (tj.Circulant([]), np.zeros((0, 0))),
    (tj.Permutation([2, 0, 1]), [[0, 0, 1], [1, 0, 0], [0, 1, 0]]),
    (tj.Sparse([1.0, 2, 3], [[1, 2], [0, 1], [1, 0]], (2, 3)), [[0, 2, 0], [3, 0, 1]]),
    (tj.Sparse([1.0, 2, 3, 4], [[1, 0], [0, 1], [1, 0], [1, 0]], (2, 2)), [[0, 2], [8, 0]]),
    *((tj.Sparse([], [], shape), np.zeros(shape)) for shape in ((3, 4), (0, 3), (2, 0), (0, 0))),
]  # fmt: skip


@pytest.mark.parametrize(("x", "dense"), ARRAYS, ids=lambda x: type(x).__name__)
def test_array_has_the_entries_and_facts_of_its_dense_array(x, dense):
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(x))
    np.testing.assert_allclose(x.to_dense(), dense)
    assert (x.shape, x.ndim, x.size) == (np.shape(dense), np.ndim(dense), np.size(dense))
    assert x.dtype == x.to_dense().dtype
    np.testing.assert_allclose(tj.linalg.sum(x), np.sum(dense), atol=1e-14)
    if x.ndim == 2:
        np.testing.assert_allclose(x.mT.to_dense(), np.transpose(dense))
        np.testing.assert_allclose(tj.trace(x), np.trace(dense), atol=1e-14)
        b = np.cos(np.arange(2.0 * x.shape[1])).reshape(-1, 2)
        product = x @ jnp.asarray(b, x.dtype)
        np.testing.assert_allclose(product, dense @ b.astype(x.dtype), atol=1e-14)


@pytest.mark.parametrize("kind", [list, np.asarray, jnp.asarray])
def test_lists_numpy_and_jax_arrays_are_the_same_to_a_constructor(kind):
    assert_close(tj.Diagonal(kind([1.0, 2.0])), tj.Diagonal(jnp.asarray([1.0, 2.0])))
    assert_close(tj.Symmetric(kind(M)), tj.Symmetric(jnp.asarray(M)))
    assert_close(tj.Fill(kind([2.0])[0], 3), tj.Fill(2.0, 3))


def sparse(values=(1.0,), places=((0, 1),), shape=(2, 2)):
    return tj.Sparse(values, places, shape)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tj.Diagonal(np.ones(())), "Diagonal: `diag` must.* 1 dimension"),
        (lambda: tj.Diagonal(1.0), "Diagonal: `diag`"),
        (lambda: tj.Symmetric([1.0]), "Symmetric: `data` must.* 2 dimension"),
        (lambda: tj.Symmetric([[1.0, 2.0]]), "Symmetric: .*be square"),
        (lambda: tj.Hermitian([1.0]), "Hermitian: `data` must.* 2 dimension"),
        (lambda: tj.Hermitian([[1.0, 2.0]]), "Hermitian: .*be square"),
        (lambda: tj.Triangular([1.0]), "Triangular: `data` must.* 2 dimension"),
        (lambda: tj.Triangular([[1.0, 2.0]]), "Triangular: .*be square"),
        (
            lambda: tj.Scaled(jnp.ones((3, 2, 2)), [1.0, 2.0]),
            r"Scaled: the batches do not broadcast.*\[3\], \[2\]",
        ),
        (lambda: tj.LowRank([1.0], M), "LowRank: `u` must.* 2 dimension"),
        (lambda: tj.LowRank(M, [1.0]), "LowRank: `v` must.* 2 dimension"),
        (lambda: tj.LowRank(M, [[1.0]]), "LowRank: .*same number of columns"),
        (
            lambda: tj.LowRankUpdate(tj.Identity(3), M),
            r"LowRankUpdate: .*do not fit.*u: float64\[2,2\]",
        ),
        (lambda: tj.LowRankUpdate(EYE, M, 1.0), "LowRankUpdate: `d` must.* 1 dimension"),
        (lambda: tj.LowRankUpdate(EYE, M, [1.0]), "LowRankUpdate: .*do not fit"),
        (lambda: tj.Kronecker(M, [1.0]), "Kronecker: .*all of them matrices"),
        (lambda: tj.BlockDiagonal(M, [1.0]), "BlockDiagonal: .*all of them matrices"),
        (lambda: tj.BlockDiagonal(), "BlockDiagonal: needs at least one block"),
        (lambda: tj.Outer(M, [1.0]), "Outer: .*same number of columns"),
        (lambda: tj.tangents.Sum(jnp.ones(2), jnp.ones(3)), "Sum: .*all of one shape"),
        (lambda: tj.tangents.Sum(), "Sum: needs at least one term"),
        (lambda: tj.Tridiagonal([1.0], [1.0], [2.0]), "`lower` must have one entry less.*, 0"),
        (lambda: tj.SymTridiagonal([1.0, 2.0], [3.0, 4.0]), "SymTridiagonal: `off` must.*, 1"),
        (lambda: tj.SymTridiagonal(1.0, [3.0]), "`diag` must have 1 dimension"),
        (lambda: tj.Banded(np.ones((3, 4)), 1, 2), r"Banded: 1 .* 2 above .*\(4, n\)"),
        (lambda: tj.Banded(np.ones((2, 4)), -1, 2), "Banded: -1 diagonals"),
        (lambda: tj.solve(tj.Banded(JUNK, 1, 2), np.ones(4)), "does not fit a matrix"),
        (lambda: tj.SymTridiagonal([1.0], []) @ np.ones(2), "cannot multiply"),
        (lambda: tj.Banded(JUNK, 1, 2) + tj.SymTridiagonal([1.0], []), "differ"),
        (lambda: tj.Toeplitz(jnp.ones(4)), "odd number of diagonals.*Hint: say `shape"),
        (lambda: tj.Toeplitz(jnp.ones(4), (2, 4)), "do not fit the shape"),
        (lambda: tj.Toeplitz(jnp.ones(2), (0, 3)), "do not fit the shape"),
        (lambda: tj.Toeplitz(jnp.ones(4), (2, 3, 1)), "do not fit the shape"),
        (lambda: tj.Toeplitz(jnp.ones(3), jnp.ones((2, 2))), "tuple of whole numbers"),
        (lambda: tj.Toeplitz(1.0), "`values` must.* 1 dimension"),
        (lambda: tj.Toeplitz.from_column(jnp.ones((2, 2))), "must be vectors"),
        (lambda: tj.solve(tj.Toeplitz(jnp.ones(4), (2, 3)), jnp.ones(2)), "needs a square matrix"),
        (lambda: tj.Toeplitz(jnp.ones(3)) @ jnp.ones(4), "cannot multiply"),
        (lambda: tj.Permutation([0, 0, 2]), r"from 0 to 2 once.*missing: \[1\]"),
        (lambda: tj.Permutation([0, 1, 3]), r"missing: \[2\]"),
        (lambda: tj.Permutation([-1, 0, 1]), r"missing: \[2\]"),
        (lambda: tj.Permutation([0.0, 1.0]), "vector of integers"),
        (lambda: tj.Permutation([True, False]), "vector of integers"),
        (lambda: tj.Permutation(0), "vector of integers"),
        (lambda: tj.Permutation([[0, 1], [1, 1]]), r"missing: \[0\]"),
        (
            lambda: sparse([1.0, 2, 3], [[2, 1], [0, 1], [2, 0]]),
            r"Sparse: 2 places are outside.*\[\[2, 1\], \[2, 0",
        ),
        (lambda: sparse(places=[[-1, 0]]), "1 places are outside"),
        (lambda: sparse(places=[[0, 0], [1, 1]]), "every value has one place"),
        (lambda: sparse([1.0, 2.0], [0, 1]), r"integers of shape \(p, 2\)"),
        (lambda: sparse(places=[[0.0, 1.0]]), "integers of shape"),
        (lambda: sparse(1.0), "`values` must have 1 dimension"),
        (lambda: sparse(shape=2), "`shape` must be two integers"),
        (lambda: sparse(shape=(2, 2**31)), "from 0 to 2147483647"),
        (
            lambda: jax.jit(lambda i: sparse(places=i))(jnp.zeros((1, 2), int)),
            "traces them.*replace",
        ),
        (lambda: jax.jit(tj.Sparse.from_dense)(np.eye(2)), "whose values are known"),
        (lambda: tj.Sparse.from_bcoo(BCOO.fromdense(np.eye(2), n_batch=1)), "n_batch"),
        (lambda: sparse() @ jnp.ones(3), r"cannot multiply Sparse\[2, 2\]"),
        (lambda: sparse() + tj.Identity(3), "differ"),
        (lambda: tj.Sparse.of_pattern(jnp.ones(2), sparse().pattern), "1 places need"),
        *((lambda n=n: tj.Identity(n), "Identity") for n in (-1, 2.5, "2", None)),
        *(
            (lambda shape=shape: tj.Zero(shape), "Zero: `shape` must be a tuple")
            for shape in (3, 2.0, "ab", (2, -1), (1.5,), None)
        ),
        (lambda: tj.Fill(2.0, (2, -1)), "Fill: `shape` must be a tuple of whole numbers"),
    ],
)
def test_wrong_ranks_shapes_and_places_name_type_and_field(make, words):
    with pytest.raises(tj.ShapeError, match=f"(?s){words}"):
        make()


def test_wrong_choices_are_refused():
    with pytest.raises(
        tj.errors.RegistrationError, match="uplo must be 'U', 'L' or 'mean', not 'X'"
    ):
        tj.Symmetric(M, "X")
    with pytest.raises(tj.errors.RegistrationError, match="Masked: unknown pattern 'diagonal'"):
        tj.tangents.Masked(jnp.asarray(M), "diagonal")


@pytest.mark.parametrize("make", [tj.Diagonal, tj.Symmetric, tj.Toeplitz])
@pytest.mark.parametrize("value", [None, "abc", [[1.0], [1.0, 2.0]]])
def test_fields_that_are_no_numbers_are_refused(make, value):
    with pytest.raises(TypeError, match=f"{make.__name__}: its entries must be numbers"):
        make(value)


def test_a_python_number_does_not_widen_the_dtype():
    x = tj.Scaled(jnp.ones((2, 2), jnp.bfloat16), 2.0)
    assert x.dtype == x.to_dense().dtype == jnp.bfloat16


def test_fields_take_one_dtype_and_one_unit():
    assert tj.SymTridiagonal(jnp.ones(2), jnp.ones(1)).dtype == jnp.float64
    with jax.numpy_dtype_promotion("standard"):
        a = tj.Tridiagonal(jnp.ones(1, int), jnp.ones(2, "float32"), jnp.ones(1, complex))
    assert {leaf.dtype for leaf in jax.tree.leaves(a)} == {jnp.dtype("complex128")}
    q = tj.SymTridiagonal(jnp.ones(2) * tj.units.metre, 100 * jnp.ones(1) * tj.unit("cm"))
    assert q.unit == tj.unit("m")
    np.testing.assert_allclose(q.value.to_dense(), np.ones((2, 2)))


def test_constructors_project_to_the_stored_form():
    assert_close(tj.Symmetric(M).data, jnp.asarray([[1.0, 2.0], [2.0, 4.0]]))
    assert_close(jnp.imag(jnp.diagonal(tj.Hermitian(C).data)), jnp.zeros(2))
    assert_close(tj.Triangular(M).data, jnp.tril(jnp.asarray(M)))
    assert_close(tj.Triangular(M, unit_diagonal=True).data, jnp.tril(jnp.asarray(M), -1))
    np.testing.assert_allclose(jnp.sum(tj.Banded(JUNK, 1, 2).bands), np.sum(of_bands(JUNK, 1, 2)))
    broken = tj.Symmetric(M).replace(data=jnp.asarray(M))
    assert_close(broken.canonical().data, jnp.asarray([[1.0, 2.5], [2.5, 4.0]]))
    assert tj.SymTridiagonal([4.0, 5.0], [7.0]).transposed().off.tolist() == [7.0]


def test_maps_of_empty_arrays_are_empty():
    empty = np.zeros((0, 0))
    arrays = [
        tj.Diagonal([]), tj.Symmetric(empty), tj.Hermitian(empty + 0j), tj.Triangular(empty),
        tj.Triangular(empty, unit_diagonal=True), tj.Fill(1.0, (0, 3)), tj.Identity(0),
        tj.Zero((0, 2)), tj.LowRank(np.zeros((0, 1)), np.zeros((2, 1))),
        tj.LowRank(np.zeros((2, 0)), np.zeros((2, 0))), tj.Kronecker(empty, M),
        tj.BlockDiagonal(empty, M), tj.Scaled(jnp.asarray(empty), 2.0),
        tj.LowRankUpdate(EYE, np.zeros((2, 0))),
    ]  # fmt: skip
    for x in arrays:
        assert x.to_dense().shape == x.shape
        dense = jnp.ones(x.shape, x.dtype)
        structural = tj.tangents.structural(x, dense)
        assert jax.tree.structure(structural) == jax.tree.structure(x)
        assert tj.destructure(tj.tangents.natural(x, structural)).shape == x.shape
        assert not any(np.any(np.isnan(v)) for v in jax.tree.leaves(structural))
        assert tj.tangents.project(x, dense).shape == x.shape


def test_constructors_project_under_jit_as_outside():
    """Constructing inside `jit` projects exactly as outside."""
    made = jax.jit(lambda m: (tj.Symmetric(m), tj.Triangular(m), tj.Diagonal(m[0])))(jnp.asarray(M))
    assert_close(made, (tj.Symmetric(M), tj.Triangular(M), tj.Diagonal(M[0])))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: tj.Diagonal(m[0]),
        tj.Symmetric,
        tj.Hermitian,
        tj.Triangular,
        lambda m: tj.Fill(m[0, 0], (2, 4)),
        lambda m: tj.Scaled(m, m[0, 0]),
        lambda m: tj.LowRank(m, m),
        lambda m: tj.LowRankUpdate(tj.Diagonal(m[0]), m),
        lambda m: tj.Kronecker(m, m),
        lambda m: tj.BlockDiagonal(m, m),
        lambda m: tj.Tridiagonal(m[:1, 0], m[1], m[:1, 1]),
        lambda m: tj.SymTridiagonal(m[0], m[:1, 1]),
        lambda m: tj.Banded(m, 1, 0),
        lambda m: tj.Toeplitz(m.ravel(), (2, 3)),
        lambda m: tj.Circulant(m[0]),
        lambda m: tj.Permutation(jnp.argsort(m[0])),
        lambda m: tj.Sparse(m.ravel(), [[0, 1], [2, 3], [1, 0], [2, 0]], (3, 4)),
    ],
)
def test_a_batch_has_leading_axes(make):
    many = jnp.stack([jnp.asarray(M), 2 * jnp.asarray(M), jnp.eye(2)])
    batch, dense = jax.vmap(make)(many), jnp.stack([make(m).to_dense() for m in many])
    assert batch.shape == dense.shape
    assert_close(batch.to_dense(), dense)
    assert_close(tj.destructure(batch.transposed()), dense.mT)
    assert_close(batch.diagonal(), jnp.diagonal(dense, axis1=1, axis2=2))
    traces = jnp.trace(dense, axis1=1, axis2=2)
    assert_close(tj.trace(batch), traces)
    assert_close(jax.vmap(tj.trace)(batch), traces)
