"""Libraries of structured linear algebra on JAX, in the cells that they have, for `bench_peers.py`.

Each contender is a function `(parameters, b, weights) -> loss` of the plain arrays of the
hand-written code (`hand.py`). It makes the library's operator and calls the operation as documented
there. If a library switches its method by size (CoLA: to iterative methods from a million entries
on), the direct method is named. A matrix that is known to be positive definite is declared so.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any

import hand_parts
import jax
import jax.numpy as jnp

Loss = Callable[..., Any]
Cells = dict[tuple[str, str], Loss]


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library: its name, its version, and its cells; or the reason for none."""

    name: str
    version: str
    cells: Cells
    reason: str = ""


def libraries() -> list[Peer]:
    """Return all peers, installed or not."""
    return [
        _peer("lineax", "lineax", ("lineax",), _lineax),
        _peer("CoLA", "cola", ("cola-ml",), _cola),
        _peer(
            "TFP",
            "tensorflow_probability.substrates.jax",
            ("tfp-nightly", "tensorflow-probability"),
            _tfp,
        ),
    ]


def _peer(name: str, module: str, packages: tuple[str, ...], cells: Callable[[Any], Cells]) -> Peer:
    version = next(filter(None, map(_version, packages)), "")
    if not version:
        return Peer(name, "", {}, f"not installed (`pip install {packages[0]}`)")
    label = f"{name} {version}"
    try:
        return Peer(name, label, cells(importlib.import_module(module)))
    except Exception as error:  # any error of a library for another JAX
        reason = f"does not import beside JAX {jax.__version__}: {type(error).__name__}: {error}"
        return Peer(name, label, {}, reason)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def weighted(of: Callable[[Any, Any], Any]) -> Loss:
    """Return the loss of a product or a solution: its inner product with the weights."""
    return lambda p, b, w: jnp.sum(w * of(p, b))


# -- lineax: systems of vectors, which `jax.vmap` makes systems of matrices ------------------------


def _lineax(lx: Any) -> Cells:
    definite, lower = lx.positive_semidefinite_tag, lx.lower_triangular_tag
    symmetric = lambda p: lx.MatrixLinearOperator(p, definite)
    make: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "Diagonal": (lambda p: lx.DiagonalLinearOperator(p[0]), lx.Diagonal()),
        "Symmetric": (lambda p: symmetric(p[0]), lx.Cholesky()),
        "Triangular": (lambda p: lx.MatrixLinearOperator(p[0], lower), lx.Triangular()),
        "Tridiagonal": (
            lambda p: lx.TridiagonalLinearOperator(p[1], p[0], p[2]),
            lx.Tridiagonal(),
        ),
        "LowRankUpdate": (lambda p: _lineax_update(lx, *p), lx.LU()),
        "Dense": (lambda p: lx.MatrixLinearOperator(p[0]), lx.LU()),
    }
    columns = lambda f: jax.vmap(f, in_axes=1, out_axes=1)

    def cells_of(operator: Callable[[Any], Any], solver: Any) -> tuple[Loss, Loss]:
        def matmul(p: Any, b: Any) -> Any:
            return columns(operator(p).mv)(b)

        def solve(p: Any, b: Any) -> Any:
            a = operator(p)
            state = solver.init(a, {})  # factored once for all columns
            return columns(lambda v: lx.linear_solve(a, v, solver, state=state).value)(b)

        return weighted(matmul), weighted(solve)

    def batch_solve(p: Any, b: Any) -> Any:
        one = cells_of(symmetric, lx.Cholesky())[1]
        return jnp.sum(jax.vmap(one)(p[0], b[0], b[1]))

    found: Cells = {}
    for structure, (operator, solver) in make.items():
        found[structure, "matmul"], found[structure, "solve"] = cells_of(operator, solver)
    found["Batch", "solve"] = lambda p, b, w: batch_solve(p, (b, w))
    return found


def _lineax_update(lx: Any, base: Any, u: Any, d: Any) -> Any:
    thin = lx.MatrixLinearOperator(u)
    return lx.DiagonalLinearOperator(base) + thin @ lx.DiagonalLinearOperator(d) @ thin.T


# -- CoLA ------------------------------------------------------------------------------------------


def _cola(cola: Any) -> Cells:
    ops, cholesky, lu = cola.ops, cola.linalg.Cholesky(), cola.linalg.LU()
    make: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "Diagonal": (lambda p: ops.Diagonal(p[0]), lu),
        "Symmetric": (lambda p: cola.PSD(ops.Dense(p[0])), cholesky),
        "Triangular": (lambda p: ops.Triangular(p[0], lower=True), lu),
        "Tridiagonal": (lambda p: ops.Tridiagonal(*p), lu),
        "Kronecker": (lambda p: ops.Kronecker(*map(ops.Dense, p)), lu),
        "LowRankUpdate": (lambda p: _cola_update(ops, *p), lu),
        "BlockDiagonal": (lambda p: ops.BlockDiag(*map(ops.Dense, p)), lu),
    }

    def cells_of(operator: Callable[[Any], Any], alg: Any) -> tuple[Loss, ...]:
        return (
            weighted(lambda p, b: operator(p) @ b),
            weighted(lambda p, b: cola.linalg.inv(operator(p), alg) @ b),
            lambda p, b, w: cola.linalg.logdet(operator(p), alg, alg),
        )

    found: Cells = {}
    for structure, (operator, alg) in make.items():
        for operation, loss in zip(
            ("matmul", "solve", "logdet"), cells_of(operator, alg), strict=True
        ):
            found[structure, operation] = loss

    def sparse(p: Any, b: Any) -> Any:
        n = b.shape[0]
        rows, columns = hand_parts.places(n)
        return ops.Sparse(p[0], rows, columns, (n, n)) @ b

    def root(p: Any) -> Any:
        return cola.linalg.sqrt(cola.PSD(ops.Dense(p[0])), cola.linalg.Eigh())

    def eigh(p: Any, b: Any) -> Any:
        a = cola.SelfAdjoint(ops.Dense(p[0]))
        values, v = cola.linalg.eig(a, p[0].shape[0], alg=cola.linalg.Eigh())
        v = v.to_dense()
        return (v * jnp.exp(-values)) @ (v.T @ b)

    return found | {
        ("Sparse", "matmul"): weighted(sparse),
        ("Symmetric", "sqrtm"): lambda p, b, w: jnp.sum(jnp.sin(root(p).to_dense())),
        ("Symmetric", "funm_multiply"): weighted(lambda p, b: root(p) @ b),
        ("Symmetric", "eigh"): weighted(eigh),
    }


def _cola_update(ops: Any, base: Any, u: Any, d: Any) -> Any:
    """Avoid `+`, which finds two methods (`AmbiguousLookupError`) beside beartype 0.23."""
    return ops.Sum(ops.Diagonal(base), ops.Product(ops.Dense(u), ops.Diagonal(d), ops.Dense(u.T)))


# -- TensorFlow Probability: the operators of TensorFlow, on JAX -----------------------------------


def _tfp(tfp: Any) -> Cells:
    of = tfp.tf2jax.linalg
    full, diag = of.LinearOperatorFullMatrix, of.LinearOperatorDiag
    definite = {"is_self_adjoint": True, "is_positive_definite": True}

    def circulant(p: Any) -> Any:
        return of.LinearOperatorCirculant(jnp.fft.fft(p[0]), input_output_dtype=jnp.float32)

    def toeplitz(p: Any) -> Any:
        n = (len(p[0]) + 1) // 2
        return of.LinearOperatorToeplitz(p[0][n - 1 :], p[0][n - 1 :: -1])

    make: dict[str, Callable[[Any], Any]] = {
        "Diagonal": lambda p: diag(p[0]),
        "Symmetric": lambda p: full(p[0], **definite),
        "Triangular": lambda p: of.LinearOperatorLowerTriangular(p[0]),
        "Kronecker": lambda p: of.LinearOperatorKronecker(list(map(full, p))),
        "LowRankUpdate": lambda p: of.LinearOperatorLowRankUpdate(diag(p[0]), p[1], p[2]),
        "Circulant": circulant,
        "BlockDiagonal": lambda p: of.LinearOperatorBlockDiag(list(map(full, p))),
        "Batch": lambda p: full(p[0], **definite),
        "Toeplitz": toeplitz,
    }
    found: Cells = {}
    for structure, operator in make.items():
        # One closure per structure: `operator` is an argument, not the variable of the loop.
        found |= _tfp_cells(structure, operator)
    return found


def _tfp_cells(structure: str, operator: Callable[[Any], Any]) -> Cells:
    return {
        (structure, "matmul"): weighted(lambda p, b: operator(p).matmul(b)),
        (structure, "solve"): weighted(lambda p, b: operator(p).solve(b)),
        (structure, "logdet"): lambda p, b, w: jnp.sum(operator(p).log_abs_determinant()),
    }


if __name__ == "__main__":  # exit status for `make bench`: is a peer installed?
    raise SystemExit(not any(peer.cells for peer in libraries()))
