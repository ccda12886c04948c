"""The Schur form of a matrix, and equations with triangular matrices.

JAX does not differentiate these functions. The recurrences go column by column. Each column is one
triangular system, so a matrix of `n` columns takes `n` steps of $O(n^2)$. Real matrices also use
complex arithmetic, unless they are triangular from the start. This is four times the work of
LAPACK's real quasi-triangular form, and needs no special case for blocks of two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._errors import ShapeError
from tanjax._typing import Arraylike, Function

from ._shapes import Between, Column, Factors, Flag, Index, Numbers, Rows, Square


def batched(signature: str) -> Callable[[Function], Function]:
    """Decorate a function of matrices: batch it, cast to one dtype, use full precision."""

    def decorate(f: Function) -> Function:
        @functools.wraps(f)
        def call(*args: Arraylike, **options: PyTree) -> Numbers:
            arrays = inexact(*args)
            with jax.default_matmul_precision("highest"):
                if all(a.ndim == 2 for a in arrays):
                    return f(*arrays, **options)
                run = functools.partial(f, **options)
                return jnp.vectorize(run, signature=signature)(*arrays)

        return call

    return decorate


def inexact(*args: Arraylike) -> list[Numbers]:
    """Cast all arguments to arrays of one dtype, floating or complex."""
    dtype = jnp.result_type(*args)
    if not jnp.issubdtype(dtype, jnp.inexact):
        dtype = jnp.zeros(()).dtype
    return [jnp.asarray(a).astype(dtype) for a in args]


def require_square(name: str, a: Arraylike) -> None:
    """Raise `ShapeError` unless the last two axes are equal."""
    shape = jnp.shape(a)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"{name}: needs a square matrix (..., n, n), got shape {list(shape)}.")


def adjoint(a: Numbers) -> Numbers:
    """Return the conjugate transpose."""
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def eye_like(a: Square) -> Square:
    """Return the unit matrix of the size and dtype of `a`."""
    return jnp.eye(a.shape[-1], dtype=a.dtype)


def schur(a: Square, *, upper_triangular: bool = False) -> Factors:
    """Return `(t, u)` with `a = u t u^H`, `t` upper triangular, `u` unitary.

    Both are complex, and constant to derivatives. With `upper_triangular`, `a` is its own Schur
    form, in its own dtype.
    """
    fixed = lax.stop_gradient(a)
    if upper_triangular:
        return jnp.triu(fixed), eye_like(fixed)
    t, u = jsl.schur(fixed, output="complex")
    return jnp.triu(t), u


def turned(t: Square, u: Square) -> Square:
    """Return `u t u^H`."""
    return u @ t @ adjoint(u)


def as_real_if(like: Numbers, x: Numbers) -> Numbers:
    """Return the real part of `x` if `like` is real: then exact arithmetic gives a real result."""
    return x if jnp.iscomplexobj(like) else jnp.real(x)


def nan_if(bad: Flag, x: Numbers) -> Numbers:
    """Return `x`, or nan in every entry if `bad`."""
    return jnp.where(bad, jnp.full_like(x, jnp.nan), x)


def leaves_the_reals(like: Square, t: Square, x: Square) -> Flag:
    """True if a principal function, cut along the negative axis, is not real for a real matrix.

    **Arguments:** `like`: the matrix; `t`: its complex Schur form; `x`: the complex result. An
    eigenvalue counts as negative if it is negative within rounding errors. These errors move
    ill-conditioned eigenvalues off the axis; an imaginary part in the result reveals them.
    """
    if jnp.iscomplexobj(like) or not jnp.iscomplexobj(x):
        return jnp.zeros((), bool)
    values = jnp.diagonal(t)
    eps = jnp.finfo(t.dtype).eps
    near = 8 * eps * t.shape[-1] * jnp.max(jnp.abs(t), initial=0.0)
    on_the_cut = (jnp.real(values) < -near) & (jnp.abs(jnp.imag(values)) <= near)
    imaginary = jnp.linalg.norm(jnp.imag(x)) > eps**0.25 * jnp.linalg.norm(jnp.real(x))
    return jnp.any(on_the_cut) | imaginary


def solve_upper(m: Square, b: Column, *, lower: bool = False) -> Column:
    """Solve a system with the upper (or lower) triangle of `m` for one column."""
    return lax.linalg.triangular_solve(m, b[:, None], left_side=True, lower=lower)[:, 0]


def sylvester_of_triangular(
    r: Rows,
    s: Square,
    f: Between,
    *,
    stein: bool = False,
    lower_r: bool = False,
    lower_s: bool = False,
) -> Between:
    """Return `y` with `r y + y s = f`, or with `stein` `y - r y s = f`, for triangular `r` and `s`.

    A column of `y` depends on the columns before it if `s` is upper triangular, and on those after
    it if `s` is lower. **References:** Bartels and Stewart 1972; Kitagawa 1977 for `stein`.
    """
    n, eye = s.shape[-1], eye_like(r)

    def step(i: Index, y: Between) -> Between:
        k = n - 1 - i if lower_s else i
        mixed = y @ s[:, k]  # unsolved columns of `y` are zero
        if stein:
            column = solve_upper(eye - s[k, k] * r, f[:, k] + r @ mixed, lower=lower_r)
        else:
            column = solve_upper(r + s[k, k] * eye, f[:, k] - mixed, lower=lower_r)
        return y.at[:, k].set(column)

    return lax.fori_loop(0, n, step, _compat.align(jnp.zeros_like(f), r, s, f))


def sqrt_of_triangular(t: Square) -> Square:
    r"""Return the upper triangular `r` with `r r = t` and diagonal in the right half plane.

    Column `j` above the diagonal solves $(R_{<j} + r_{jj})\,x = t_{<j,j}$. If zero eigenvalues make
    this system singular, the entry is zero if a root exists, and nan if not.
    **References:** Björck and Hammarling 1983.
    """
    n = t.shape[-1]
    roots, rows = jnp.sqrt(jnp.diagonal(t)), jnp.arange(n)

    def step(j: Index, r: Square) -> Square:
        above = rows < j
        sums = jnp.where(above, roots + roots[j], 1)
        singular = sums == 0
        m = jnp.where(jnp.eye(n, dtype=bool), jnp.where(singular, 1, sums), r)
        x = solve_upper(m, jnp.where(above, t[:, j], 0))
        x = jnp.where(singular & (x != 0), jnp.nan, x)
        return r.at[:, j].set(jnp.where(rows == j, roots[j], jnp.where(above, x, 0)))

    return lax.fori_loop(0, n, step, _compat.align(jnp.zeros_like(t), t))
