"""The cells: a structure and an operation, each computed three ways.

Every contender is a function `(parameters, b, weights) -> loss` of the structure's own parameters.
`b` and `weights` have shape `(n, 64)`, or another number of columns. The loss is
`sum(weights * (A @ b))`, the same with `solve(A, b)`, with a function of `A` by its spectrum
(`funm_multiply`: its root), or `logdet(A)`: an inner product adds nothing to the measured
time. The loss of `sqrtm` is `sum(sin(sqrtm(A)))`, whose cotangent of the root is a full matrix.

* `tanjax` takes an array of the type and calls the operation.
* `hand` takes plain arrays. It is code by an expert on the structure, and it returns the same
  gradient: symmetric for a symmetric matrix, masked for a triangular one. It uses a hand-written
  `jax.custom_vjp` where that beats `jax.grad` (a factorisation used twice, thin factors symmetrised
  before they are multiplied, a mask applied once).
* `dense` forms the matrix from the parameters and uses `jnp`; the maps that form it make its
  gradient the right one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import hand
import hand_parts
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

import tanjax as tj

COLUMNS, RANK = 64, 8
SMALL = 16  # rows of each matrix of a `Batch`
STRUCTURES = (
    "Diagonal",
    "Symmetric",
    "Triangular",
    "Tridiagonal",
    "Banded",
    "Kronecker",
    "LowRankUpdate",
    "Circulant",
    "BlockDiagonal",
)
OPERATIONS = ("matmul", "solve", "logdet")
CELLS = (
    *((structure, operation) for structure in STRUCTURES for operation in OPERATIONS),
    ("Kronecker", "sin_matmul"),
    ("Sparse", "matmul"),
    ("Batch", "solve"),
    ("Batch", "logdet"),
    ("Toeplitz", "matmul"),
    ("Toeplitz", "solve"),
    ("Symmetric", "eigh"),
    ("Symmetric", "sqrtm"),
    ("Symmetric", "funm_multiply"),
    ("Dense", "svd"),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One structure, one operation, one size: a loss per contender and its arguments."""

    structure: str
    operation: str
    n: int
    losses: dict[str, Callable[..., Any]]
    arguments: dict[str, tuple[Any, ...]]

    def __str__(self) -> str:
        return f"{self.structure} {self.operation}"


def make_cell(structure: str, operation: str, n: int, columns: int = COLUMNS) -> Cell:
    """Return the losses and the data of one cell, float32."""
    rng = np.random.default_rng(0)
    array, plain = PARAMETERS[structure](rng, n)
    shape = (n // SMALL, SMALL, columns) if structure == "Batch" else (n, columns)
    b, weights = (_normal(rng, *shape) for _ in range(2))
    form = FORMS.get(structure, lambda p: array.replace(values=p[0]).to_dense())
    return Cell(
        structure,
        operation,
        n,
        {
            "tanjax": LOSSES[operation],
            "hand": _by_hand(f"{structure.lower()}_{operation}"),
            "dense": lambda p, b, w: DENSE[operation](form(p), b, w),
        },
        {"tanjax": (array, b, weights), "hand": (plain, b, weights), "dense": (plain, b, weights)},
    )


def _by_hand(name: str) -> Callable[..., Any]:
    return getattr(hand, name, None) or getattr(hand_parts, name)


def _normal(rng: Any, *shape: int) -> Any:
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


# -- parameters: well conditioned at every size -------------------------------------------------


def _diagonal(rng: Any, n: int) -> Any:
    d = jnp.asarray(rng.uniform(1.0, 2.0, n), jnp.float32)
    return tj.Diagonal(d), (d,)


def _symmetric(rng: Any, n: int) -> Any:
    x = np.linalg.qr(rng.normal(size=(n, n)))[0]  # equal gaps, as gradients divide by them
    data = (x * np.linspace(1.0, 4.0, n)) @ x.T
    array = tj.Symmetric(jnp.asarray(data, jnp.float32), definite=True)
    return array, (array.data,)


def _triangular(rng: Any, n: int) -> Any:
    x = np.tril(rng.normal(size=(n, n)) / (4 * n), -1) + np.diag(rng.uniform(1.0, 2.0, n))
    array = tj.Triangular(jnp.asarray(x, jnp.float32))
    return array, (array.data,)


def _tridiagonal(rng: Any, n: int) -> Any:
    beside = (jnp.asarray(rng.normal(size=n - 1), jnp.float32) for _ in range(2))
    lower, upper = beside
    diag = jnp.asarray(rng.uniform(3.0, 4.0, n), jnp.float32)
    return tj.Tridiagonal(lower, diag, upper), (lower, diag, upper)


def _banded(rng: Any, n: int) -> Any:
    bands = _normal(rng, 5, n).at[2].add(8.0)
    array = tj.Banded(bands, 2, 2)
    return array, (array.bands,)


def _kronecker(rng: Any, n: int) -> Any:
    p = 2 ** (n.bit_length() // 2)
    factors = tuple(
        jnp.asarray(rng.normal(size=(m, m)) / m + 2 * np.eye(m), jnp.float32) for m in (p, n // p)
    )
    return tj.Kronecker(*factors), factors


def _update(rng: Any, n: int) -> Any:
    base = jnp.asarray(rng.uniform(1.0, 2.0, n), jnp.float32)
    u, d = _normal(rng, n, RANK) / n**0.5, jnp.asarray(rng.uniform(1.0, 2.0, RANK), jnp.float32)
    return tj.LowRankUpdate(tj.Diagonal(base), u, d), (base, u, d)


def _circulant(rng: Any, n: int) -> Any:
    column = jnp.asarray(rng.normal(size=n) / n, jnp.float32).at[0].add(2)
    return tj.Circulant(column), (column,)


def _blocks(rng: Any, n: int) -> Any:
    m = min(64, n // 2)
    eye = 2 * np.eye(m)
    parts = (rng.normal(size=(m, m)) / (2 * m**0.5) + eye for _ in range(n // m))
    array = tj.BlockDiagonal(*(jnp.asarray(x, jnp.float32) for x in parts))
    return array, array.blocks


def _sparse(rng: Any, n: int) -> Any:
    indices = np.stack(hand_parts.places(n), axis=1)
    array = tj.Sparse(_normal(rng, len(indices)), indices, (n, n))
    return array, (array.values,)


def _batch(rng: Any, n: int) -> Any:
    """Return as many small definite matrices as make `n` rows."""
    x = rng.normal(size=(n // SMALL, SMALL, SMALL)) / SMALL**0.5
    data = x @ x.swapaxes(1, 2) + np.eye(SMALL)
    array = tj.Symmetric(jnp.asarray(data, jnp.float32), definite=True)
    return array, (array.data,)


def _toeplitz(rng: Any, n: int) -> Any:
    values = jnp.asarray(rng.normal(size=2 * n - 1) / (4 * n), jnp.float32).at[n - 1].add(2)
    return tj.Toeplitz(values), (values,)


def _dense(rng: Any, n: int) -> Any:
    a = _normal(rng, n, n) / n**0.5
    return a, (a,)


PARAMETERS = {
    "Diagonal": _diagonal,
    "Symmetric": _symmetric,
    "Triangular": _triangular,
    "Tridiagonal": _tridiagonal,
    "Banded": _banded,
    "Kronecker": _kronecker,
    "LowRankUpdate": _update,
    "Circulant": _circulant,
    "BlockDiagonal": _blocks,
    "Sparse": _sparse,
    "Batch": _batch,
    "Toeplitz": _toeplitz,
    "Dense": _dense,
}


def _cyclic(n: int) -> Any:
    return (jnp.arange(n)[:, None] - jnp.arange(n)) % n


# -- operations ----------------------------------------------------------------------------------


def _of_eigh(eigh: Callable[..., Any]) -> Callable[..., Any]:
    def loss(a: Any, b: Any, w: Any) -> Any:
        values, v = eigh(a)
        return jnp.sum(w * ((v * jnp.exp(-values)) @ (v.T @ b)))

    return loss


def _of_svd(svd: Callable[..., Any]) -> Callable[..., Any]:
    def loss(a: Any, b: Any, w: Any) -> Any:
        u, s, vh = svd(a, full_matrices=False)
        return jnp.sum(w * ((u * jnp.log1p(s)) @ (vh @ b)))

    return loss


def _root_by_eigh(a: Any, b: Any, w: Any) -> Any:
    values, v = jnp.linalg.eigh(a)
    return jnp.sum(jnp.sin((v * jnp.sqrt(values)) @ v.T))


def _product_by_eigh(a: Any, b: Any, w: Any) -> Any:
    values, v = jnp.linalg.eigh(a)
    return jnp.sum(w * ((v * jnp.sqrt(values)) @ (v.T @ b)))


LOSSES = {
    "matmul": lambda a, b, w: jnp.sum(w * (a @ b)),
    "sin_matmul": lambda a, b, w: jnp.sum(w * jnp.sin(a @ b)),  # entry by entry, where layouts show
    "solve": lambda a, b, w: jnp.sum(w * tj.solve(a, b)),
    "logdet": lambda a, b, w: jnp.sum(tj.logdet(a)),
    "eigh": _of_eigh(tj.linalg.eigh),
    "svd": _of_svd(tj.linalg.svd),
    "sqrtm": lambda a, b, w: jnp.sum(jnp.sin(tj.linalg.sqrtm(a).data)),
    "funm_multiply": lambda a, b, w: jnp.sum(w * tj.linalg.funm_multiply(a, b, jnp.sqrt)),
}
DENSE = {
    "matmul": lambda a, b, w: jnp.sum(w * (a @ b)),
    "sin_matmul": lambda a, b, w: jnp.sum(w * jnp.sin(a @ b)),
    "solve": lambda a, b, w: jnp.sum(w * jnp.linalg.solve(a, b)),
    "logdet": lambda a, b, w: jnp.sum(jnp.linalg.slogdet(a).logabsdet),
    "eigh": _of_eigh(jnp.linalg.eigh),
    "svd": _of_svd(jnp.linalg.svd),
    "sqrtm": _root_by_eigh,
    "funm_multiply": _product_by_eigh,
}
FORMS: dict[str, Callable[..., Any]] = {
    "Diagonal": lambda p: jnp.diag(p[0]),
    "Symmetric": lambda p: (p[0] + p[0].T) / 2,
    "Batch": lambda p: (p[0] + p[0].mT) / 2,
    "Triangular": lambda p: jnp.tril(p[0]),
    "Tridiagonal": lambda p: jnp.diag(p[1]) + jnp.diag(p[0], -1) + jnp.diag(p[2], 1),
    "Banded": lambda p: tj.Banded(p[0], 2, 2).to_dense(),
    "Kronecker": lambda p: jnp.kron(p[0], p[1]),
    "Circulant": lambda p: p[0][_cyclic(len(p[0]))],
    "LowRankUpdate": lambda p: jnp.diag(p[0]) + (p[1] * p[2]) @ p[1].T,
    "BlockDiagonal": lambda p: jsl.block_diag(*p),
    "Toeplitz": lambda p: tj.Toeplitz(p[0]).to_dense(),
    "Dense": lambda p: p[0],
}
