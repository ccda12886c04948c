"""Names of JAX and NumPy on structured arrays: their flags, keywords and nested arguments."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
import tanjax.scipy.linalg as tsl

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import dense_tree

pytestmark = pytest.mark.core

A = jnp.asarray([[4.0, 1, 0.5], [1, 5, -1], [0.5, -1, 3]])
S, D = tj.Symmetric(A), tj.Diagonal(jnp.asarray([1.0, 2.0, 4.0]))
B = jnp.ones(3)


def assert_close(got, expected):
    """The numbers, whatever tuple holds them."""
    pairs = zip(jax.tree.leaves(dense_tree(got)), jax.tree.leaves(expected), strict=True)
    for g, e in pairs:
        assert g.dtype == e.dtype
        np.testing.assert_allclose(g, e, rtol=1e-6 if g.dtype == jnp.float32 else 1e-10, atol=1e-12)


# Each on a namespace, for `numpy`, `tanjax.numpy` and a dense matrix with `jax.numpy`.
CALLS = {
    "sum, keepdims": lambda xp, a: xp.sum(a, axis=1, keepdims=True),
    "sum, where": lambda xp, a: xp.sum(a, where=np.eye(3) > 0),
    "sum, by place": lambda xp, a: xp.sum(a, 0),
    "trace, offset": lambda xp, a: xp.trace(a, 1),
    "trace, same": lambda xp, a: xp.trace(a, offset=0),
    "diagonal, offset": lambda xp, a: xp.diagonal(a, -1),
    "linalg.diagonal": lambda xp, a: xp.linalg.diagonal(a, offset=1),
    "linalg.trace": lambda xp, a: xp.linalg.trace(a, offset=-1),
    "transpose, axes": lambda xp, a: xp.transpose(a, (0, 1)),
    "cholesky, upper": lambda xp, a: xp.linalg.cholesky(a, upper=True),
    "pinv, hermitian": lambda xp, a: xp.linalg.pinv(a, hermitian=True),
    "eigvalsh, UPLO": lambda xp, a: xp.linalg.eigvalsh(a, "U"),
    "eigh, UPLO": lambda xp, a: xp.linalg.eigh(a, UPLO="U")[0],
    "svd, hermitian": lambda xp, a: xp.linalg.svd(a, hermitian=True)[1],
}
OF_JAX = {
    "norm, by name": lambda xp, a: xp.linalg.norm(x=a),
    "matrix_power, by name": lambda xp, a: xp.linalg.matrix_power(a=a, n=2),
    "matrix_rank, tol": lambda xp, a: xp.linalg.matrix_rank(a, tol=0.1),
    "slogdet, method": lambda xp, a: xp.linalg.slogdet(a, method="qr"),
    "matmul, dtype": lambda xp, a: xp.matmul(a, a, preferred_element_type=jnp.float32),
    "lstsq, rcond": lambda xp, a: xp.linalg.lstsq(a, B, rcond=1e-3),
    "pinv, rtol": lambda xp, a: xp.linalg.pinv(a, rtol=0.3),
    "multi_dot": lambda xp, a: xp.linalg.multi_dot([a, a, B]),
    "block": lambda xp, a: xp.block([[a, A], [A, a]]),
    "select": lambda xp, a: xp.select([A > 0], [a]),
}


@pytest.mark.parametrize("a", [S, D], ids=["Symmetric", "Diagonal"])
@pytest.mark.parametrize("call", (CALLS | OF_JAX).values(), ids=[*CALLS, *OF_JAX])
def test_flags_are_neither_lost_nor_refused(call, a):
    with tj.densify("allow"):
        expected = call(jnp, a.to_dense())
        assert_close(call(tnp, a), expected)
        assert_close(jax.jit(lambda a: call(tnp, a))(a), expected)
        if call in CALLS.values():
            assert_close(call(np, a), expected)


def test_flags_that_are_understood_keep_structure():
    with tj.densify("error"):
        assert type(np.linalg.cholesky(S, upper=True)) is tj.Triangular
        assert type(tnp.linalg.pinv(S, hermitian=True)) is tj.Symmetric
        assert type(tsl.cholesky(D, lower=True)) is tj.Diagonal
        assert type(tsl.inv(D)) is tj.Diagonal
        assert type(tsl.block_diag(S, D)) is tj.BlockDiagonal
        assert type(tnp.linalg.multi_dot([D, D, D])) is tj.Diagonal
        assert_close(tsl.solve(S, B, assume_a="pos"), jnp.linalg.solve(A, B))
        assert_close(tsl.solve_triangular(D, B, trans="T", lower=True), B / D.diag)


def test_flags_that_are_not_understood_are_said():
    with tj.densify("error"), pytest.raises(tj.NoRuleError):
        tnp.sum(D, where=A > 0)


def test_flags_of_one_value_and_several_types_are_told_apart():
    a = tj.Triangular(A)
    for offset in (1, True, 0, False):
        got = tnp.linalg.diagonal(a, offset=offset)
        assert_close(got, jnp.linalg.diagonal(a.to_dense(), offset=offset))


@pytest.mark.parametrize(
    "a",
    [
        tj.Symmetric(jnp.asarray([[1.0, 2], [2, 1]])),
        tj.Diagonal(jnp.asarray([-1.0, 2.0])),
        tj.Kronecker(tj.Diagonal(jnp.asarray([-1.0, 2.0])), tj.Diagonal(jnp.asarray([3.0, 2.0]))),
    ],
    ids=lambda a: type(a).__name__,
)
def test_roots_of_scipy_are_complex_for_every_type(a):
    root = tsl.sqrtm(a)
    expected = jsl.sqrtm(a.to_dense())
    assert root.dtype == expected.dtype
    assert_close(root, expected)


@pytest.mark.parametrize("rtol", [1e-3, 0.6])
def test_tolerances_under_lift(rtol):
    pinv = lambda a: jnp.linalg.pinv(a, rtol=rtol)
    lstsq = lambda a: jnp.linalg.lstsq(a, B, rcond=rtol)
    with tj.densify("allow"):  # which JAX before 0.12 needs for the tolerance of `pinv`
        assert_close(tj.lift(pinv)(S), pinv(A))
        assert_close(tj.lift(lstsq)(S), lstsq(A))
