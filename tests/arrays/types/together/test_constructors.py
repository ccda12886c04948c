"""What the constructors of array types accept, canonicalise and refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_close

M = [[1.0, 2.0], [3.0, 4.0]]
C = [[1.0 + 1j, 2.0 + 1j], [3.0, 4.0 - 2j]]

DENSE = {
    "Diagonal": (lambda: tj.Diagonal([1.0, 2.0]), [[1, 0], [0, 2]]),
    "Symmetric, upper": (lambda: tj.Symmetric(M), [[1, 2], [2, 4]]),
    "Symmetric, lower": (lambda: tj.Symmetric(M, "L"), [[1, 3], [3, 4]]),
    "Symmetric, mean": (lambda: tj.Symmetric(M, uplo="mean"), [[1, 2.5], [2.5, 4]]),
    "Symmetric, complex": (lambda: tj.Symmetric(C), [[1 + 1j, 2 + 1j], [2 + 1j, 4 - 2j]]),
    "Symmetric, of one": (lambda: tj.Symmetric(tj.Symmetric(M), "L"), [[1, 2], [2, 4]]),
    "Hermitian, upper": (lambda: tj.Hermitian(C), [[1, 2 + 1j], [2 - 1j, 4]]),
    "Hermitian, lower": (lambda: tj.Hermitian(C, "L"), [[1, 3], [3, 4]]),
    "Hermitian, mean": (lambda: tj.Hermitian(C, "mean"), [[1, 2.5 + 0.5j], [2.5 - 0.5j, 4]]),
    "Hermitian, real": (lambda: tj.Hermitian(M), [[1, 2], [2, 4]]),
    "Triangular, lower": (lambda: tj.Triangular(M), [[1, 0], [3, 4]]),
    "Triangular, upper": (lambda: tj.Triangular(M, lower=False), [[1, 2], [0, 4]]),
    "Triangular, unit": (lambda: tj.Triangular(M, unit_diagonal=True), [[1, 0], [3, 1]]),
    "Triangular, unit upper": (lambda: tj.Triangular(M, False, True), [[1, 2], [0, 1]]),
    "Scaled": (lambda: tj.Scaled(jnp.asarray(M), 2), [[2, 4], [6, 8]]),
    "Scaled, nested": (lambda: tj.Scaled(tj.Diagonal([1.0, 2.0]), 0.5), [[0.5, 0], [0, 1]]),
    "Fill": (lambda: tj.Fill(3, (2, 3)), [[3, 3, 3], [3, 3, 3]]),
    "Fill, vector": (lambda: tj.Fill(1.5, 2), [1.5, 1.5]),
    "Fill, scalar": (lambda: tj.Fill(1.5, ()), 1.5),
    "Identity": (lambda: tj.Identity(2), [[1, 0], [0, 1]]),
    "Zero": (lambda: tj.Zero((1, 2)), [[0, 0]]),
    "Outer": (lambda: tj.Outer([1.0, 2.0], [3.0, 4.0]), [[3, 4], [6, 8]]),
    "Masked": (lambda: tj.Masked(jnp.asarray(M), "strictly_lower"), [[0, 0], [3, 0]]),
    "Sum": (lambda: tj.Sum(jnp.asarray(M), tj.Identity(2)), [[2, 2], [3, 5]]),
    "LowRank": (lambda: tj.LowRank([[1.0], [2.0]], [[3.0], [4.0]]), [[3, 4], [6, 8]]),
    "LowRankUpdate": (
        lambda: tj.LowRankUpdate(tj.Identity(2), [[1.0], [2.0]], [10.0]),
        [[11, 20], [20, 41]],
    ),
    "LowRankUpdate, not symmetric": (
        lambda: tj.LowRankUpdate(tj.Identity(2), [[1.0], [2.0]], None, [[3.0], [4.0]]),
        [[4, 4], [6, 9]],
    ),
    "Kronecker": (lambda: tj.Kronecker(M, [[1.0, 10.0]]), [[1, 10, 2, 20], [3, 30, 4, 40]]),
    "Kronecker, one": (lambda: tj.Kronecker(M), M),
    "BlockDiagonal": (
        lambda: tj.BlockDiagonal(tj.Diagonal([7.0]), [[1.0, 2.0]]),
        [[7, 0, 0], [0, 1, 2]],
    ),
}  # fmt: skip
every = pytest.mark.parametrize("case", DENSE)


@every
def test_the_dense_array_and_the_facts(case):
    make, dense = DENSE[case]
    x = make()
    np.testing.assert_allclose(x.to_dense(), dense)
    assert x.shape == np.shape(dense)
    assert x.ndim == np.ndim(dense)
    assert x.size == np.size(dense)
    assert x.dtype == x.to_dense().dtype
    if x.ndim == 2:
        np.testing.assert_allclose(x.mT.to_dense(), np.transpose(dense))


@every
def test_fields_are_jax_arrays_whatever_was_given(case):
    leaves = jax.tree.leaves(DENSE[case][0]())
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)


@pytest.mark.parametrize("kind", [list, np.asarray, jnp.asarray])
def test_lists_numpy_and_jax_arrays_are_the_same_to_a_constructor(kind):
    assert_close(tj.Diagonal(kind([1.0, 2.0])), tj.Diagonal(jnp.asarray([1.0, 2.0])))
    assert_close(tj.Symmetric(kind(M)), tj.Symmetric(jnp.asarray(M)))
    assert_close(tj.Fill(kind([2.0])[0], 3), tj.Fill(2.0, 3))


REFUSED = {
    "Diagonal": (lambda: tj.Diagonal(np.ones(())), "Diagonal: `diag` must.* 1 dimension"),
    "Diagonal, scalar": (lambda: tj.Diagonal(1.0), "Diagonal: `diag`"),
    "Symmetric": (lambda: tj.Symmetric([1.0]), "Symmetric: `data` must.* 2 dimension"),
    "Symmetric, square": (lambda: tj.Symmetric([[1.0, 2.0]]), "Symmetric: .*be square"),
    "Hermitian": (lambda: tj.Hermitian([1.0]), "Hermitian: `data` must.* 2 dimension"),
    "Hermitian, square": (lambda: tj.Hermitian([[1.0, 2.0]]), "Hermitian: .*be square"),
    "Triangular": (lambda: tj.Triangular([1.0]), "Triangular: `data` must.* 2 dimension"),
    "Triangular, square": (lambda: tj.Triangular([[1.0, 2.0]]), "Triangular: .*be square"),
    "Scaled, batches": (
        lambda: tj.Scaled(jnp.ones((3, 2, 2)), [1.0, 2.0]),
        r"(?s)Scaled: the batches do not broadcast.*\[3\], \[2\]",
    ),
    "LowRank": (lambda: tj.LowRank([1.0], M), "LowRank: `u` must.* 2 dimension"),
    "LowRank, v": (lambda: tj.LowRank(M, [1.0]), "LowRank: `v` must.* 2 dimension"),
    "LowRank, columns": (lambda: tj.LowRank(M, [[1.0]]), "LowRank: .*same number of columns"),
    "LowRankUpdate": (
        lambda: tj.LowRankUpdate(tj.Identity(3), M),
        r"(?s)LowRankUpdate: .*do not fit.*u: float64\[2,2\]",
    ),
    "LowRankUpdate, d": (
        lambda: tj.LowRankUpdate(tj.Identity(2), M, 1.0),
        "LowRankUpdate: `d` must.* 1 dimension",
    ),
    "LowRankUpdate, length of d": (
        lambda: tj.LowRankUpdate(tj.Identity(2), M, [1.0]),
        "LowRankUpdate: .*do not fit",
    ),
    "Kronecker": (lambda: tj.Kronecker(M, [1.0]), "Kronecker: .*all of them matrices"),
    "BlockDiagonal": (lambda: tj.BlockDiagonal(M, [1.0]), "BlockDiagonal: .*all of them matrices"),
    "BlockDiagonal, none": (lambda: tj.BlockDiagonal(), "BlockDiagonal: needs at least one block"),
    "Outer": (lambda: tj.Outer(M, [1.0]), "Outer: .*same number of columns"),
    "Sum": (lambda: tj.Sum(jnp.ones(2), jnp.ones(3)), "Sum: .*all of one shape"),
    "Sum, none": (lambda: tj.Sum(), "Sum: needs at least one term"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_ranks_and_shapes_name_type_and_field(case):
    call, words = REFUSED[case]
    with pytest.raises(tj.ShapeError, match=words):
        call()


def test_wrong_choices_are_refused():
    with pytest.raises(tj.RegistrationError, match="uplo must be 'U', 'L' or 'mean', not 'X'"):
        tj.Symmetric(M, "X")
    with pytest.raises(tj.RegistrationError, match="Masked: unknown pattern 'diagonal'"):
        tj.Masked(jnp.asarray(M), "diagonal")


def test_a_python_number_does_not_widen_the_dtype():
    x = tj.Scaled(jnp.ones((2, 2), jnp.bfloat16), 2.0)
    assert x.dtype == x.to_dense().dtype == jnp.bfloat16


def test_storage_keeps_its_invariant():
    assert_close(tj.Symmetric(M).data, jnp.asarray([[1.0, 2.0], [2.0, 4.0]]))
    assert_close(jnp.imag(jnp.diagonal(tj.Hermitian(C).data)), jnp.zeros(2))
    assert_close(tj.Triangular(M).data, jnp.tril(jnp.asarray(M)))
    assert_close(tj.Triangular(M, unit_diagonal=True).data, jnp.tril(jnp.asarray(M), -1))
    broken = tj.Symmetric(M).replace(data=jnp.asarray(M))
    assert_close(broken.canonical().data, jnp.asarray([[1.0, 2.5], [2.5, 4.0]]))


def test_zero_sizes():
    empty = np.zeros((0, 0))
    arrays = [
        tj.Diagonal([]), tj.Symmetric(empty), tj.Hermitian(empty + 0j), tj.Triangular(empty),
        tj.Triangular(empty, unit_diagonal=True), tj.Fill(1.0, (0, 3)), tj.Identity(0),
        tj.Zero((0, 2)), tj.LowRank(np.zeros((0, 1)), np.zeros((2, 1))),
        tj.LowRank(np.zeros((2, 0)), np.zeros((2, 0))), tj.Kronecker(empty, M),
        tj.BlockDiagonal(empty, M), tj.Scaled(jnp.asarray(empty), 2.0),
        tj.LowRankUpdate(tj.Identity(2), np.zeros((2, 0))),
    ]  # fmt: skip
    for x in arrays:
        assert x.to_dense().shape == x.shape
        dense = jnp.ones(x.shape, x.dtype)
        structural = tj.structural(x, dense)
        assert jax.tree.structure(structural) == jax.tree.structure(x)
        assert tj.destructure(tj.natural(x, structural)).shape == x.shape
        assert not any(np.any(np.isnan(v)) for v in jax.tree.leaves(structural))
        assert tj.project(x, dense).shape == x.shape
    assert_close(tj.LowRank(np.zeros((2, 0)), np.zeros((2, 0))).to_dense(), jnp.zeros((2, 2)))


def test_constructors_trace():
    """Constructing inside `jit` projects exactly as outside."""
    made = jax.jit(lambda m: (tj.Symmetric(m), tj.Triangular(m), tj.Diagonal(m[0])))(jnp.asarray(M))
    assert_close(made, (tj.Symmetric(M), tj.Triangular(M), tj.Diagonal(M[0])))


BATCHES = {
    "Diagonal": (lambda m: tj.Diagonal(m[0]), (3, 2, 2)),
    "Symmetric": (tj.Symmetric, (3, 2, 2)),
    "Hermitian": (tj.Hermitian, (3, 2, 2)),
    "Triangular": (tj.Triangular, (3, 2, 2)),
    "Fill": (lambda m: tj.Fill(m[0, 0], (2, 4)), (3, 2, 4)),
    "Scaled": (lambda m: tj.Scaled(m, m[0, 0]), (3, 2, 2)),
    "LowRank": (lambda m: tj.LowRank(m, m), (3, 2, 2)),
    "LowRankUpdate": (lambda m: tj.LowRankUpdate(tj.Diagonal(m[0]), m), (3, 2, 2)),
    "Kronecker": (lambda m: tj.Kronecker(m, m), (3, 4, 4)),
    "BlockDiagonal": (lambda m: tj.BlockDiagonal(m, m), (3, 4, 4)),
}


@pytest.mark.parametrize("case", BATCHES)
def test_a_batch_has_leading_axes(case):
    make, shape = BATCHES[case]
    many = jnp.stack([jnp.asarray(M), 2 * jnp.asarray(M), jnp.eye(2)])
    batch = jax.vmap(make)(many)
    assert batch.shape == shape
    assert_close(batch.to_dense(), jnp.stack([make(m).to_dense() for m in many]))
    traces = jnp.stack([jnp.trace(make(m).to_dense()) for m in many])
    assert_close(tj.trace(batch), traces)
    assert_close(jax.vmap(tj.trace)(batch), traces)


def test_nested_types():
    x = tj.Scaled(tj.BlockDiagonal(tj.Symmetric(M), tj.Kronecker(tj.Diagonal([1.0, 2.0]), M)), 2.0)
    dense = np.zeros((6, 6))
    dense[:2, :2] = [[1, 2], [2, 4]]
    dense[2:, 2:] = np.kron(np.diag([1, 2]), M)
    np.testing.assert_allclose(x.to_dense(), 2 * dense)
    pulled = jax.vjp(tj.destructure, x)[1](jnp.asarray(dense))[0]
    assert_close(tj.structural(x, jnp.asarray(dense)), pulled)


@pytest.mark.parametrize("n", [-1, 2.5, "2", None])
def test_an_identity_has_a_number_of_rows(n):
    with pytest.raises(tj.ShapeError, match="Identity"):
        tj.Identity(n)


@pytest.mark.parametrize("shape", [3, "ab", (2, -1), (1.5,), None])
def test_a_zero_has_a_shape(shape):
    with pytest.raises(tj.ShapeError, match="Zero: `shape` must be a tuple"):
        tj.Zero(shape)


@pytest.mark.parametrize("make", [tj.Diagonal, tj.Symmetric, tj.Toeplitz])
@pytest.mark.parametrize("value", [None, "abc", [[1.0], [1.0, 2.0]]])
def test_fields_are_numbers(make, value):
    with pytest.raises(TypeError, match=f"{make.__name__}: its entries must be numbers"):
        make(value)
