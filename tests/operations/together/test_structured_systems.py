"""Systems with a structured right-hand side: the matrix keeps its factorisation, and says nothing.

The solution is full, so that the right-hand side becomes dense. The matrix must not: a band of a
million rows has no room for that.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

S = Samples(41)
BANDS = {
    "Tridiagonal": tj.Tridiagonal(S.normal(3), 4 + S.normal(4), S.normal(3)),
    "SymTridiagonal": tj.SymTridiagonal(4 + S.normal(4), S.normal(3)),
    "definite SymTridiagonal": tj.SymTridiagonal(4 + S.normal(4), S.normal(3), definite=True),
    "Banded": tj.Banded(S.complex(3, 4).at[1].add(4), 1, 1),
}
SYSTEMS = {
    **BANDS,
    "Kronecker": tj.Kronecker(S.regular(2), tj.Symmetric(S.definite(2))),
    "BlockDiagonal": tj.BlockDiagonal(S.regular(3), tj.Diagonal(S.positive(1))),
    "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal(S.positive(4)), S.normal(4, 1), S.positive(1)),
    "Circulant": tj.Circulant(S.normal(4).at[0].add(6)),
    "Diagonal": tj.Diagonal(S.positive(4)),
}
RIGHT = {
    "Diagonal": tj.Diagonal(S.normal(4)),
    "Permutation": tj.Permutation([2, 0, 3, 1]),
    "Kronecker": tj.Kronecker(S.normal(2, 2), S.normal(2, 1)),
    "Tridiagonal": tj.Tridiagonal(S.normal(3), S.normal(4), S.normal(3)),
    "Sparse": tj.Sparse(S.normal(3), [[0, 1], [2, 0], [3, 1]], (4, 2)),
    "Toeplitz": tj.Toeplitz.from_column(S.normal(4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_only_the_right_hand_side_becomes_dense(name):
    a = SYSTEMS[name]
    for kind, b in RIGHT.items():
        with tj.densify("allow"), jax.numpy_dtype_promotion("standard"):
            table = tj.passes.cost(tj.capture(tj.solve)(a, b))
            x = tj.destructure(tj.solve(a, b))
            want = jnp.linalg.solve(a.to_dense(), b.to_dense())
        np.testing.assert_allclose(x, want, rtol=1e-9, atol=1e-9, err_msg=kind)
        assert [dense for row in table for dense in row.lost] in ([], [kind])


@pytest.mark.parametrize("name", BANDS)
def test_gradient_of_a_band_system_has_no_dense_factorisation(name):
    a = BANDS[name]
    for b in (RIGHT["Diagonal"], tj.Identity(4), RIGHT["Toeplitz"]):
        loss = lambda a, b: jnp.sum(abs(tj.destructure(tj.solve(a, b))))
        with tj.densify("allow"), jax.numpy_dtype_promotion("standard"):
            text = str(jax.make_jaxpr(jax.grad(loss))(a, b))
        assert " lu " not in text
        assert "scan" in text or "tridiagonal_solve" in text


def test_systems_for_the_identity_have_the_type_of_the_inverse():
    with tj.densify("error"):
        for a in SYSTEMS.values():
            x = tj.solve(a, tj.Identity(4, a.dtype))
            assert type(x) is type(tj.inv(a))
            eye = tj.destructure(x) @ a.to_dense()
            np.testing.assert_allclose(eye, np.eye(4), atol=1e-10)


def test_errors_name_solver_and_estimator():
    a = tj.Sparse(jnp.ones(2), [[0, 0], [1, 1]], (2, 2))
    with tj.densify("error"):
        with pytest.raises(tj.NoRuleError, match=r"solver=lineax\.CG.*lineax\.GMRES"):
            tj.solve(a, jnp.ones(2))
        with pytest.raises(tj.NoRuleError, match="estimator="):
            tj.logdet(a)
        with pytest.raises(tj.NoRuleError, match=r"Diagonal\[2, 2\].*\n.*tj\.solve\(a, b @ x\)"):
            tj.solve(a, tj.Diagonal(jnp.ones(2)))
