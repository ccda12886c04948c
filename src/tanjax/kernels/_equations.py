r"""Sylvester and Lyapunov equations, by Schur forms.

The solution is linear in the right-hand side, so its derivative is one more solve with the same
matrices. The transpose is another Sylvester equation: $A^\top W + W B^\top = \bar X$ is
$B W^\top + W^\top A = \bar X^\top$. The value, derivative and transpose share the Schur forms.

Sharp edge: if an eigenvalue of $A$ and one of $B$ sum to zero, the equation has no solution or
many. The result is then `inf` or `nan`.
"""

from __future__ import annotations

from jax import lax

from tanjax import _compat

from ._schur import (
    adjoint,
    as_real_if,
    batched,
    schur,
    sylvester_of_triangular,
)
from ._shapes import Between, Factors, Rows, Square


@batched("(m,m),(n,n),(m,n)->(m,n)")
def sylvester(a: Rows, b: Square, q: Between, *, upper_triangular: bool = False) -> Between:
    """Return `x` with `a x + x b = q`."""
    if q.size == 0:
        return q
    of_a = schur(a, upper_triangular=upper_triangular)
    of_b = schur(b, upper_triangular=upper_triangular)

    def solve_with(first: tuple[Rows, Rows], second: Factors, q: Between) -> Between:
        (r, u), (s, v) = first, second
        y = sylvester_of_triangular(r, s, adjoint(u) @ q.astype(r.dtype) @ v)
        return as_real_if(q, u @ y @ adjoint(v))

    return lax.custom_linear_solve(
        lambda x: a @ x + x @ b,
        _compat.align(q, a, b),
        lambda _, q: solve_with(of_a, of_b, q),
        lambda _, g: solve_with(of_b, of_a, g.T).T,
    )


def sylvester_of_itself(x: Square, root: Square, u: Square, q: Square) -> Square:
    """Return `y` with `x y + y x = q`, where `x` has the Schur form `u root u^H`."""
    x, root, u, q = _compat.align((x, root, u, q))

    def solve(q: Square) -> Square:
        y = sylvester_of_triangular(root, root, adjoint(u) @ q.astype(root.dtype) @ u)
        return as_real_if(q, u @ y @ adjoint(u))

    return lax.custom_linear_solve(
        lambda y: x @ y + y @ x,
        q,
        lambda _, q: solve(q),
        lambda _, g: solve(g.T).T,
    )


@batched("(n,n),(n,n)->(n,n)")
def lyapunov(a: Square, q: Square) -> Square:
    """Return `x` with `a x + x a^H = q`, as in SciPy."""
    return _of_one_matrix(a, q, stein=False)


@batched("(n,n),(n,n)->(n,n)")
def discrete_lyapunov(a: Square, q: Square) -> Square:
    """Return `x` with `x - a x a^H = q`, as in SciPy."""
    return _of_one_matrix(a, q, stein=True)


def _of_one_matrix(a: Square, q: Square, *, stein: bool) -> Square:
    r"""Solve `a x + x a^H = q` or `x - a x a^H = q`, with one Schur form `a = u r u^H`.

    The transposed equations have the unknown $W^\top$, with $A^H$ on the left and $A$ on the right:
    $A^H W^\top + W^\top A = G^\top$ and $W^\top - A^H W^\top A = G^\top$.
    """
    if q.size == 0:
        return q
    r, u = schur(a)

    def within(q: Square, *, transposed: bool) -> Square:
        left, right = (adjoint(r), r) if transposed else (r, adjoint(r))
        f = adjoint(u) @ q.astype(r.dtype) @ u
        y = sylvester_of_triangular(
            left, right, f, stein=stein, lower_r=transposed, lower_s=not transposed
        )
        return as_real_if(q, u @ y @ adjoint(u))

    def applied(x: Square) -> Square:
        return x - a @ x @ adjoint(a) if stein else a @ x + x @ adjoint(a)

    return lax.custom_linear_solve(
        applied,
        _compat.align(q, a),
        lambda _, q: within(q, transposed=False),
        lambda _, g: within(g.T, transposed=True).T,
    )
