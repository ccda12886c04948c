"""A routine of NumPy that writes to its argument, differentiated by its author's rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Function

if TYPE_CHECKING:
    from tanjax.testing import Case


def sweep_in_numpy(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Run one sweep of Gauss and Seidel, as a loop over NumPy arrays that JAX cannot see."""
    x, a, b = np.array(x), np.asarray(a), np.asarray(b)
    for i in range(len(x)):
        x[i] += (b[i] - a[i] @ x) / a[i, i]
    return x


def check_arguments(x: AnyArray, a: DenseArray, b: DenseArray) -> None:
    """Refuse results that the memory of `x` cannot hold; NumPy would broadcast or truncate."""
    if not x.shape == b.shape == a.shape[1:] == a.shape[:1]:
        raise tj.ShapeError(f"gauss_seidel: shapes {x.shape}, {a.shape}, {b.shape} of `x, a, b`.")
    if jnp.result_type(x.dtype, a, b) != x.dtype:
        raise TypeError(f"gauss_seidel: `x` is {x.dtype}, which does not hold the result.")


@tj.inplace(mutates="x")
def gauss_seidel(
    x: Shaped[jax.Ref, " n"], a: Shaped[DenseArray, "n n"], b: Shaped[DenseArray, " n"]
) -> None:
    """Overwrite `x`, of shape `(n,)`, by a better solution of `a @ x = b`, in NumPy.

    **Raises:** `ShapeError`, and `TypeError` if `x` is real and others are not. **Cost:** O(n²), on
    the host. **Derivative:** `gauss_seidel_rule`; without it JAX refuses to differentiate a
    callback. **References:** Saad, Iterative Methods for Sparse Linear Systems, section 4.1.

    >>> x = tj.new_ref(jnp.zeros(2))
    >>> gauss_seidel(x, jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([2.0, 5.0]))
    >>> x[...].tolist()
    [1.0, 1.0]
    """
    check_arguments(x, a, b)
    after = jax.ShapeDtypeStruct(x.shape, x.dtype)
    x[...] = jax.pure_callback(sweep_in_numpy, after, x[...], a, b, vmap_method="sequential")


@gauss_seidel.natural_rule
def gauss_seidel_rule(
    x: Shaped[DenseArray, " n"], a: Shaped[DenseArray, "n n"], b: Shaped[DenseArray, " n"]
) -> tuple[tj.refs.Transition, Function]:
    r"""$L x' = b - U x$ gives $\bar b = L^{-\top} \bar x'$, with triangles $L + U = A$.

    The first line is the transition and not `primal`, so that second derivatives use this rule
    again, and not NumPy.
    """
    after = gauss_seidel.transition(x, a, b)
    new = after.state[0]

    def gauss_seidel_pullback(
        x_bar: Shaped[DenseArray, " n"], out_bar: None
    ) -> tuple[Shaped[DenseArray, " n"], Shaped[DenseArray, "n n"], Shaped[DenseArray, " n"]]:
        b_bar = jsl.solve_triangular(a, x_bar, lower=True, trans="T")
        a_bar = -jnp.tril(jnp.outer(b_bar, new)) - jnp.triu(jnp.outer(b_bar, x), 1)
        return -jnp.triu(a, 1).T @ b_bar, a_bar, b_bar

    return after, gauss_seidel_pullback


# -- cases ---------------------------------------------------------------------------------------


def definition(x: DenseArray, a: DenseArray, b: DenseArray) -> tj.refs.Transition:
    """Run the same sweep in JAX."""
    check_arguments(x, a, b)
    new = jsl.solve_triangular(a, b - jnp.triu(a, 1) @ x, lower=True)
    return tj.refs.Transition((new,), None)


def cases() -> Iterator[Case]:
    """Real and complex."""
    from tanjax.testing import Case, Samples

    s = Samples(37)
    for args in (
        (s.normal(3), s.regular(3), s.normal(3)),
        (s.complex(2), s.regular(2, complex=True), s.complex(2)),
    ):
        yield Case(gauss_seidel.transition, *args).declare(reference=definition)
