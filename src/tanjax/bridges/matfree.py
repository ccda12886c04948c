r"""Determinants by stochastic Lanczos quadrature, of matrices that can only be multiplied.

$\log\det A = \mathrm{tr}\log A$ is the mean of $z^H \log(A)\,z$ over random vectors $z$ with
independent entries of size 1. For each $z$, matfree's Lanczos iteration finds a small tridiagonal
matrix. Its weighted spectrum replaces that of $A$ for this $z$.

    key = jax.random.key(0)
    value = tj.logdet(a, estimator=Lanczos(order=30, samples=10, key=key))

The derivative is the natural rule of `logdet`, estimated with the same vectors: $\bar A = \bar y
A^{-\top}$ is the mean of $\bar y\,(A^{-\top}\bar z)\,z^\top$, one solve per vector and an outer
product that is never formed. It is an unbiased estimate of the gradient of $\log\det A$, which is
not the gradient of the estimate: the Lanczos iteration is not differentiated.

Sharp edges. For positive definite matrices (Hermitian, if complex). Others give `nan`: an
eigenvalue that is not positive has no logarithm, and two random vectors test that the matrix is
Hermitian. An order too small for the condition of the matrix gives a biased value, and only a
larger order shows the bias.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact, PyTree, Shaped

from tanjax._typing import SquareMatrix
from tanjax.arrays import Outer, is_structured
from tanjax.operations import Algorithm, solve_by

from ._missing import missing

try:
    import matfree.decomp
    import matfree.stochtrace
except ImportError as error:
    raise missing("matfree") from error


class Lanczos(eqx.Module):
    r"""An estimator for `tj.logdet(a, estimator=...)`, and `slogdet`, `inv_quad_logdet`.

    **Arguments:** `order`, the products with the matrix per random vector; `samples`, the number of
    random vectors, of signs (of phases, for complex matrices); `key`, of `jax.random`, the same for
    value and derivative; `solver` and `options` of lineax for the solves of the derivative, by
    default `lineax.CG(rtol=1e-5, atol=1e-5)`; `reorthogonalize`: against all vectors (default), or
    against two, which saves time and loses digits.

    **Cost:** `order * samples` products, `order * n` numbers at a time for the value; `samples`
    solves at once, and `samples * n` numbers, for the derivative.
    **Error:** `estimate` returns the standard error over the vectors, $O(1/\sqrt{\text{samples}})$.
    The bias falls exponentially with `order`, more slowly for a worse condition.
    **Raises:** `ValueError` if `order` or `samples` is not positive.
    **References:** Ubaru, Chen and Saad 2017; Gardner et al. 2018.
    """

    order: int = eqx.field(static=True)
    samples: int = eqx.field(static=True)
    key: Shaped[Array, " ..."]
    solver: eqx.Module | None = None
    options: dict[str, PyTree] | None = None
    reorthogonalize: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        if self.order < 1 or self.samples < 1:
            raise ValueError(
                f"Lanczos: order and samples must be positive, got {self.order}, {self.samples}."
            )

    def logdet(self, a: SquareMatrix) -> Float[Array, ""]:
        """Return the estimate: the mean of `estimate`."""
        return self.estimate(a)[0]

    def estimate(self, a: SquareMatrix) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return `log(det(a))` of a positive definite `(n, n)` matrix, and its standard error.

        The error is that of the random vectors alone, `nan` for one of them. No derivative: that
        of the value comes with `tj.logdet`. `nan` for matrices that are not positive definite.
        """
        vectors = self._vectors(a)
        if not vectors.size:
            zero = jnp.zeros((), jnp.finfo(vectors.dtype).dtype)
            return zero, zero
        order = min(self.order, a.shape[-1])
        of_one = lambda z: _quadrature(a, z, order, self.reorthogonalize)
        found = jax.lax.map(of_one, vectors)
        found = jnp.where(_is_hermitian(a, vectors, self.key), found, jnp.nan)
        spread = jnp.sum((found - jnp.mean(found)) ** 2) / (self.samples - 1 or jnp.nan)
        return jnp.mean(found), jnp.sqrt(spread / self.samples)

    def cotangent(self, a: SquareMatrix, y_bar: Float[Array, ""]) -> PyTree:
        """Return the estimate of the natural cotangent of `a`: an `Outer` of width `samples`."""
        from tanjax.bridges.lineax import transposed_options

        vectors = self._vectors(a).T
        algorithm = Algorithm.of(
            (self.system_solver(), transposed_options(self.options or {}), True)
        )
        transpose = a.mT if is_structured(a) else jnp.asarray(a).T
        left = solve_by(transpose, jnp.conj(vectors), algorithm)
        return Outer(left * (y_bar / self.samples).astype(left.dtype), vectors)

    def system_solver(self) -> eqx.Module:
        """Return the solver of the derivative, also the default solver of `inv_quad_logdet`."""
        if self.solver is not None:
            return self.solver
        import lineax

        return lineax.CG(rtol=1e-5, atol=1e-5)

    def _vectors(self, a: SquareMatrix) -> Inexact[Array, "samples n"]:
        dtype = a.dtype if jnp.issubdtype(a.dtype, jnp.inexact) else jnp.result_type(float)
        like = jnp.zeros(a.shape[-1], dtype)
        with jax.numpy_dtype_promotion("standard"):  # matfree multiplies real by complex
            drawn = matfree.stochtrace.sampler_signs(like, num=self.samples)(self.key)
        return drawn.astype(dtype)


def _times(a: SquareMatrix, vector: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
    with jax.numpy_dtype_promotion("standard"):  # of integers
        out = a.apply(vector) if is_structured(a) else jnp.asarray(a) @ vector
    return out.astype(vector.dtype)


def _quadrature(
    a: SquareMatrix, z: Inexact[Array, " n"], order: int, reorthogonalize: bool
) -> Float[Array, ""]:
    """Return `z^H log(a) z` by the eigenvalues of the tridiagonal matrix of the iteration."""
    how = "full" if reorthogonalize else "none"
    iterate = matfree.decomp.hessenberg(order, reortho=how, custom_vjp=False)
    with jax.numpy_dtype_promotion("standard"):
        small = iterate(lambda v: _times(a, v), z / jnp.linalg.norm(z)).J_small
    diag, below = jnp.real(jnp.diagonal(small)), jnp.real(jnp.diagonal(small, -1))
    # Where an entry below the diagonal is rounding, the vectors so far span an invariant space.
    # Later entries are noise, or 0/0, and get no weight.
    noise = 8 * jnp.finfo(diag.dtype).eps * jax.lax.cummax(jnp.abs(diag))[:-1]
    ended = jnp.cumsum(jnp.concatenate([jnp.zeros(1, bool), below <= noise])) > 0
    diag = jnp.where(ended, jnp.ones_like(diag), diag)
    below = jnp.where(ended[1:], jnp.zeros_like(below), below)
    values, vectors = jnp.linalg.eigh(jnp.diag(diag) + jnp.diag(below, -1) + jnp.diag(below, 1))
    return jnp.sum(vectors[0] ** 2 * jnp.log(values)) * z.shape[0]


def _is_hermitian(
    a: SquareMatrix, vectors: Inexact[Array, "samples n"], key: Shaped[Array, " ..."]
) -> Shaped[Array, ""]:
    """True if `u^H (a v)` and `(a u)^H v` agree for two random vectors."""
    u = vectors[0]
    v = jax.random.normal(jax.random.fold_in(key, 1), u.shape, u.dtype)
    au, av = _times(a, u), _times(a, v)
    size = jnp.linalg.norm(u) * jnp.linalg.norm(av) + jnp.linalg.norm(v) * jnp.linalg.norm(au)
    return ~(jnp.abs(jnp.vdot(u, av) - jnp.vdot(au, v)) > jnp.finfo(size.dtype).eps ** 0.5 * size)
