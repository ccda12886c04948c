r"""The exponential, and its derivative in a direction.

Scaling and squaring: $e^A = (e^{A/2^s})^{2^s}$ with a Padé approximant of $e^{A/2^s}$. Forward
mode AD of that algorithm is the algorithm of Al-Mohy and Higham for the Fréchet derivative
$L(A, E)$. The transpose of $L(A, \cdot)$ is $L(A^\top, \cdot)$. So reverse mode is also a forward
mode, and stores none of the squares.

The first step balances the matrix: $e^A = D\,e^{D^{-1} A D}\,D^{-1}$ with a diagonal $D$ of powers
of two, which is exact. Each squaring may double the error, and entries of very different size need
many squarings: a companion matrix, states in different units, a large entry above small
eigenvalues. Derivatives take $D$ as constant.

`jax.scipy.linalg.expm` rounds the number of squarings down. It loses up to four digits if the norm
lies between two steps (1e-12 instead of 1e-16 for a diagonal matrix of norm 10).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tanjax._typing import Arraylike

from ._schur import batched, eye_like, nan_if, require_square
from ._shapes import Column, Numbers, Square

# The numerators of the diagonal Padé approximants, and the largest norms with a backward error
# below rounding errors (Higham 2005, table 2.3; section 5 for single precision).
_DOUBLE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
    10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
_SINGLE = (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1)
_LARGEST = {"double": 5.371920351148152, "single": 3.925724783138660}
_MOST_SQUARINGS = 32


def exponential(a: Arraylike) -> Numbers:
    """Return `e` to the power of a matrix `(..., n, n)`."""
    require_square("expm", a)
    return _exponential(a)


@batched("(n,n)->(n,n)")
def _exponential(a: Square) -> Square:
    if a.size == 0:
        return a
    precision = "double" if jnp.finfo(a.dtype).bits == 64 else "single"
    largest = _LARGEST[precision]
    power = _balance(lax.stop_gradient(jnp.abs(a)), largest)
    scale = _power_of_two(power[None, :] - power[:, None], a)
    a = a * scale
    norm = jnp.max(jnp.sum(jnp.abs(lax.stop_gradient(a)), axis=0))
    steps = jnp.maximum(jnp.ceil(jnp.log2(norm / largest)), 0)
    numerator = _DOUBLE if precision == "double" else _SINGLE
    x = _pade(a * _power_of_two(-steps, a), numerator)
    square = lambda x, i: (lax.cond(i < steps, lambda x: x @ x, lambda x: x, x), None)
    x, _ = lax.scan(square, x, jnp.arange(_MOST_SQUARINGS, dtype=steps.dtype))
    return nan_if(~(steps <= _MOST_SQUARINGS), x * scale.T)


def _balance(size: Square, enough: float) -> Column:
    r"""Return the exponents `x` of the diagonal that balances `2**(x[j] - x[i]) * size[i, j]`.

    Osborne's iteration on all rows and columns at once takes half of each step. So the sum of all
    entries off the diagonal cannot grow. As in LAPACK, a row and column take part if this shrinks
    their sum, diagonal included, by a twentieth. Here the sum also includes the norm that is small
    `enough`. So a triangular matrix, which no scaling makes symmetric, becomes nearly diagonal, and
    a matrix that needs no squaring does not change.

    **References:** Osborne 1960; Parlett and Reinsch 1969; James, Langou and Lowery 2014.
    """
    diagonal = jnp.diagonal(size)
    fixed = enough + 2 * diagonal
    off = size - jnp.diag(diagonal)
    most = jnp.finfo(size.dtype).maxexp // 2 - 1  # a quotient of two scales is a normal number

    def steps(x: Column) -> Column:
        now = off * jnp.exp2(x[None, :] - x[:, None])
        column, row = jnp.sum(now, axis=0), jnp.sum(now, axis=1)
        step = jnp.log2((row + enough) / (column + enough)) / 2
        after = column * jnp.exp2(step) + row * jnp.exp2(-step)
        worth = after + fixed < 0.95 * (column + row + fixed)
        return jnp.where(worth & (jnp.abs(x + step / 2) <= most), step / 2, 0)

    x, _ = lax.while_loop(
        lambda state: jnp.any(state[1] != 0),
        lambda state: (state[0] + state[1], steps(state[0] + state[1])),
        (jnp.zeros_like(diagonal), steps(jnp.zeros_like(diagonal))),
    )
    return jnp.round(x)


def _power_of_two(exponent: Numbers, like: Square) -> Numbers:
    """Return the exact power of two in the dtype of a matrix; `exp2` is not exact."""
    one = jnp.ones_like(exponent)  # a scalar 1 would lose the mesh axes over which it varies
    return jnp.ldexp(one, exponent.astype(int)).astype(like.dtype)


def _pade(a: Square, numerator: tuple[int, ...]) -> Square:
    """Return the diagonal Padé approximant; even and odd powers serve both polynomials."""
    c = [jnp.asarray(float(v), a.dtype) for v in numerator]
    eye, a2 = eye_like(a), a @ a
    even, odd, power = c[0] * eye, c[1] * eye, eye
    for k in range(2, len(c), 2):
        power = a2 if k == 2 else power @ a2
        even, odd = even + c[k] * power, odd + c[k + 1] * power
    odd = a @ odd
    return jnp.linalg.solve(even - odd, even + odd)


def frechet(a: Numbers, e: Numbers) -> Numbers:
    """Return the derivative of `exponential` at `a` in the direction `e`."""
    return jax.jvp(exponential, (a,), (e,))[1]
