"""Users may forbid JAX to broadcast arrays of different ranks; operations then work as before."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj

pytestmark = [pytest.mark.core, pytest.mark.slow]

S = jnp.array([[4.0, 1, 0.5], [1, 5, -1], [0.5, -1, 3]])
MATRICES = {
    "dense": S,
    "Diagonal": tj.Diagonal([1.0, 2, 3]),
    "Symmetric": tj.Symmetric(S, definite=True),
    "Triangular": tj.Triangular(S),
    "SymTridiagonal": tj.SymTridiagonal([3.0, 4, 5], [1.0, 0.5]),
    "Tridiagonal": tj.Tridiagonal([0.1, 0.2], [3.0, 4, 5], [1.0, 0.5]),
    "Banded": tj.Banded(jnp.ones((3, 3)), 1, 1),
    "Toeplitz": tj.Toeplitz(jnp.array([0.1, 0.5, 4.0, 0.5, 0.1])),
    "Circulant": tj.Circulant(jnp.array([4.0, 1, 1])),
    "Permutation": tj.Permutation(jnp.array([1, 0, 2])),
    "Sparse": tj.Sparse(jnp.arange(1.0, 4), [[0, 0], [1, 1], [2, 2]], (3, 3)),
    "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal([1.0, 2, 3]), jnp.ones((3, 1))),
    "Kronecker": tj.Kronecker(tj.Symmetric(S, definite=True), tj.Diagonal([1.0, 2.0])),
    "shifted": tj.Kronecker(tj.Symmetric(S), tj.Symmetric(S)) + 2.0 * tj.Identity(9),
    "BlockDiagonal": tj.BlockDiagonal(S, tj.Diagonal([1.0, 2])),
    "stack": tj.BlockDiagonal.from_stack(jnp.stack([S, 2 * S])),
    "Scaled": tj.Scaled(tj.Symmetric(S), jnp.array(2.0)),
}


def sides(a):
    return jnp.ones((a.shape[0], 2), a.dtype)


CALLS = {
    "matmul": lambda a: a @ sides(a),
    "solve": lambda a: tj.solve(a, sides(a)),
    "logdet": tj.logdet,
    "det": tj.det,
    "inv": tj.inv,
    "cholesky": tj.linalg.cholesky,
    "factorize": lambda a: tj.factorize(a).solve(sides(a)),
    "diagonal of the inverse": lambda a: tj.factorize(a).diagonal_of_inverse(),
    "inv_quad": lambda a: tj.factorize(a).inv_quad(sides(a)[:, 0]),
    "eigh": lambda a: tj.linalg.eigh(a)[0],
    "svd": lambda a: tj.linalg.svd(a)[1],
    "qr": lambda a: tj.linalg.qr(a)[1],
    "pinv": tj.linalg.pinv,
    "norm": tj.norm,
    "spectral norm": lambda a: tj.norm(a, 2),
    "expm": tj.linalg.expm,
    "logm": tj.linalg.logm,
    "sqrtm": tj.linalg.sqrtm,
    "funm_hermitian": lambda a: tj.linalg.funm_hermitian(a, jnp.exp),
    "matrix_power": lambda a: tj.linalg.matrix_power(a, 3),
    "solve_lyapunov": lambda a: tj.linalg.solve_lyapunov(a, jnp.eye(a.shape[0], dtype=a.dtype)),
    "sums and multiples": lambda a: a + 2.0 * a,
}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_values_and_gradients_promote_no_rank(matrix):
    """Traced only, as JAX checks ranks then; a call that is refused with promotion is left out."""

    def total(call):
        parts = lambda y: [x for x in jax.tree.leaves(y) if jnp.issubdtype(x.dtype, jnp.inexact)]
        return lambda a: sum((jnp.sum(jnp.real(x)) for x in parts(call(a))), jnp.zeros(()))

    traced = 0
    for call in CALLS.values():
        gradient = jax.grad(total(call), allow_int=True)
        with tj.densify("allow"):
            try:
                jax.eval_shape(gradient, matrix)
            except (tj.ShapeError, tj.NoRuleError):
                continue
            with jax.numpy_rank_promotion("raise"):
                jax.eval_shape(gradient, matrix)
        traced += 1
    assert traced > 10
