"""NumPy's products of arrays of any type, under NumPy's names: `tj.dot` and `tj.vdot`."""

from tanjax._typing import Natural, Scalar

from .namespaces import function

_dot, _vdot = function("numpy", "dot"), function("numpy", "vdot")


def dot(a: Natural, b: Natural) -> Natural:
    r"""Return the product of matrices and vectors, as `jnp.dot`: `a @ b`, or `a * b` of a scalar.

    **Units:** the product of both.
    **Cost:** that of `matmul`.
    **Raises:** `ShapeError` if a structured argument does not fit the other, or is a batch.
    **Derivative:** that of `matmul`. The sum of products of entries is `tj.vdot`.

    >>> import jax.numpy as jnp, tanjax as tj
    >>> tj.dot(tj.Diagonal([2.0, 3.0]), jnp.ones(2))
    Array([2., 3.], dtype=float32)
    """
    return _dot(a, b)


def vdot(a: Natural, b: Natural) -> Scalar:
    r"""Return `sum(conj(a) * b)` over all entries, as `jnp.vdot`: the first argument conjugated.

    The sum without conjugation, which pairs natural cotangents and tangents, is
    `tj.linalg.pairing`.

    **Units:** the product of both.
    **Cost:** that of the thinner side.
    **Raises:** `ShapeError` if a structured argument has another shape than the other.
    **Derivative:** $\bar a = \overline{\bar y b}$, $\bar b = \bar y\,\overline{a}$.

    >>> import jax.numpy as jnp, tanjax as tj
    >>> tj.vdot(tj.Diagonal([2.0, 3.0]), jnp.ones((2, 2)))
    Array(5., dtype=float32)
    """
    return _vdot(a, b)
