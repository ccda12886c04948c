"""A factorised matrix: factor once, solve many.

The factor of a matrix costs $O(n^3)$ and each use of it $O(n^2)$, so it should be kept. But
differentiating through a factor costs several times as much as computing it. So a `Factorization`
holds the matrix, through which JAX differentiates, and its factors, which are constants to JAX.
Each result states its derivative in terms of the matrix and computes it with the same factors.

    f = tj.factorize(a)
    loss = f.inv_quad(b) + f.logdet()
    sample = f.root() @ z

`@tj.factorize.implementation(Type)` registers the factorisation of a type. It makes a
`Factorization` of the matrix, its parts, and a `FactorizationPlan`: functions of these.

Sharp edge: factors made outside of a function do not follow a matrix that changes inside. Call
`tj.factorize` where the matrix is made.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from importlib import import_module
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import export
from jaxtyping import PyTree

from tanjax._errors import NoRuleError, RulePackError, ShapeError, UnitError, describe, message
from tanjax._typing import DType, Function, Natural
from tanjax.arrays import AbstractArray, as_array, leading, over_batches, read_static, write_static
from tanjax.quantities import Quantity, UnitFunction, is_quantity, unitful
from tanjax.registry import Operation, packs
from tanjax.units import Unit, one
from tanjax.units.signatures import not_linear

from ._operations import SlogdetResult


class FactorizationPlan(NamedTuple):
    """Functions that use the parts of a factorised matrix.

    `solve(matrix, parts, b, transposed)`: the solution for right-hand sides `(..., n, k)`, with the
    matrix or its transpose (no conjugation); `slogdet(matrix, parts)`: sign and logarithm;
    `root(matrix, parts, z, adjoint)`: `r @ z`, or `r^H @ z`, for columns `z` and one `r` with
    `r @ r^H = a`; `cholesky(matrix, parts)`: the dense lower factor, if the parts give it, which
    also serves as a root; `inv_quad(matrix, parts, b)`: `b^H a^-1 b` of a Hermitian matrix, if a
    second solution for its derivative would be expensive; `diagonal_of_inverse(matrix, parts)`.

    The functions of a plan must be module constants, or fields of a plan that is one. They are
    pickled by these names. If the module belongs to a rule pack, `jax.export` finds them by name,
    too.
    """

    solve: Function
    slogdet: Function
    root: Function | None = None
    cholesky: Function | None = None
    inv_quad: Function | None = None
    diagonal_of_inverse: Function | None = None

    def __reduce__(self) -> tuple[Function, tuple[object, ...]]:
        places = _places_of(self)
        return (FactorizationPlan, tuple(self)) if "" in places else (_plan_at, (places,))


def _places_of(plan: FactorizationPlan) -> tuple[str | None, ...]:
    """Return `"module:name"` or `"module:plan.field"` per function, `""` without a place."""
    return tuple(f and next(_places(f), "") for f in plan)


def _places(f: Function) -> Iterator[str]:
    module = sys.modules.get(getattr(f, "__module__", ""))
    for name, value in vars(module).items() if module else ():
        if value is f:
            yield f"{f.__module__}:{name}"
        elif type(value) is FactorizationPlan:
            fields = zip(FactorizationPlan._fields, value, strict=True)
            yield from (f"{f.__module__}:{name}.{field}" for field, g in fields if g is f)


def _plan_at(places: tuple[str | None, ...]) -> FactorizationPlan:
    def function_at(place: str) -> Function:
        module, _, name = place.partition(":")
        found: PyTree = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    return FactorizationPlan(*[place and function_at(place) for place in places])  # type: ignore[arg-type]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["matrix", "parts"],
    meta_fields=["plan", "n", "unit", "batch_ndim"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Factorization:
    """A square matrix with its factors, made by `tj.factorize`; a pytree.

    **Fields:** `matrix`: results are differentiated through it (`None` if the parts hold it);
    `parts`; `plan`; `n`, the number of rows; `unit`, of a quantity (otherwise `None`);
    `batch_ndim`, the axes of a batch of structured matrices, over which the plan is mapped.
    """

    matrix: PyTree
    parts: PyTree
    plan: FactorizationPlan
    n: int
    unit: Unit | None = None
    batch_ndim: int = 0

    def solve(self, b: Natural, *, transposed: bool = False) -> Natural:
        r"""The `x` with `a @ x = b` (or `a.mT @ x = b`), in $O(n^2 k)$ for a dense factor.

        **Arguments:** `b`, `(n,)` or `(..., n, k)`. **Returns:** `x`, in the unit of `b` over that
        of the matrix. **Raises:** `ShapeError` if `b` does not fit.
        **Derivative:** $\bar A = -w x^\top$, $\bar b = w$ with $w = A^{-\top}\bar x$.
        """
        raw = functools.partial(self._solve, transposed)
        if not is_quantity(b) and self.unit is None:
            return raw(b)
        x = UnitFunction("solve", raw, "b: v -> v", names=("b",))(b)
        return x if self.unit is None else x / unitful(jnp.ones((), _real(x)), self.unit)

    def _solve(self, transposed: bool, b: Natural) -> Natural:
        b = as_array(b)
        vector = b.ndim == 1
        if b.ndim == 0 or b.shape[-1 if vector else -2] != self.n:
            raise ShapeError(
                f"Factorization.solve: the right-hand side {describe(b)} does not fit a matrix "
                f"{[self.n, self.n]}."
            )
        solve = lambda matrix, parts, b: self.plan.solve(matrix, parts, b, transposed)
        x = self._mapped(solve, b[:, None] if vector else b)
        return x[..., 0] if vector else x

    def _inv_quad(self, b: Natural) -> Natural:
        b = as_array(b)
        if self.plan.inv_quad is None or b.ndim == 0 or b.shape[-2 if b.ndim > 1 else -1] != self.n:
            return _paired(b, self._solve(False, b))
        return self._mapped(self.plan.inv_quad, b[:, None] if b.ndim == 1 else b)

    def slogdet(self) -> SlogdetResult:
        r"""Sign (phase) and `log(abs(det(a)))`, in $O(n)$.

        **Raises:** `UnitError` if the matrix has a unit. **Derivative:** that of
        `tj.linalg.slogdet`.
        """
        if self.unit is not None:
            raise UnitError(
                message(
                    f"Factorization.slogdet: the matrix is in {self.unit}.",
                    "why: the logarithm of a number with a unit depends on the unit.",
                    hint="factorise `a / unit`, or use `tj.det(a)`.",
                )
            )
        return SlogdetResult(*self._mapped(self.plan.slogdet))

    def _mapped(self, function: Function, *args: Natural) -> PyTree:
        """Apply a function of the plan to every matrix of a batch."""
        if not self.batch_ndim:
            return function(self.matrix, self.parts, *args)
        batch = jax.tree.leaves((self.matrix, self.parts))[0].shape[: self.batch_ndim]
        batches = (batch, batch, *(leading(a, 2) for a in args))
        return over_batches("Factorization", function, (self.matrix, self.parts, *args), batches)

    def logdet(self) -> Natural:
        r"""`log(abs(det(a)))`, in $O(n)$. **Derivative:** $\bar A = \bar y A^{-\top}$."""
        return self.slogdet().logabsdet

    @property
    def has_root(self) -> bool:
        """True if the factors give a root."""
        return self.plan.root is not None or self.plan.cholesky is not None

    def root(self) -> Root:
        r"""One `r` with `r @ r^H = a`, to multiply: `r @ z` has the covariance `a`.

        The products are nan if the matrix is not positive definite, or not Hermitian, which
        `Circulant`, `Banded` and `Tridiagonal` matrices may be. The root is the Cholesky factor of
        dense arrays and bands. It is the Hermitian root of Kronecker products plus a multiple of
        the identity. **Returns:** a `Root`, in the square root of the unit.

        **Raises:** `ShapeError` if the factors give no root (`has_root`): for a `Toeplitz` matrix,
        and for a `Symmetric` or `Hermitian` one without `definite=True`.
        """
        if not self.has_root:
            raise ShapeError(
                message(
                    "Factorization.root: no root is among the factors.",
                    "why: the matrix is not positive definite by its type, or a root of it has no "
                    "structure.",
                    hint="promise it, `tj.Symmetric(a, definite=True)`, or use "
                    "`tj.linalg.cholesky(a)`.",
                )
            )
        return Root(self)

    def _root_times(self, adjoint: bool, z: Natural) -> Natural:
        z = as_array(z)
        vector = z.ndim == 1
        if z.ndim == 0 or z.shape[-1 if vector else -2] != self.n:
            raise ShapeError(
                f"Factorization.root: {describe(z)} does not fit a root {[self.n, self.n]}."
            )

        def multiply(matrix: PyTree, parts: PyTree, z: Natural) -> Natural:
            if self.plan.root is not None:
                return self.plan.root(matrix, parts, z, adjoint)
            assert self.plan.cholesky is not None
            factor = self.plan.cholesky(matrix, parts)
            return (jnp.conj(factor).mT if adjoint else factor) @ z

        out = self._mapped(multiply, z[:, None] if vector else z)
        return out[..., 0] if vector else out

    def diagonal_of_inverse(self) -> Natural:
        r"""The diagonal of `a^-1`, `(..., n)`, in one over the unit of the matrix.

        **Cost:** $O(n)$ for bands, $O(n \log n)$ for `Circulant` and `Toeplitz`; $O(n r^2)$ for a
        `LowRankUpdate`, besides its base. For a `Kronecker` plus a multiple of the identity
        $O(n \sum n_i)$, and $O(n \sum n_i^2)$ for the derivative. $O(n^3)$ for dense factors.
        **Raises:** `NoRuleError` if the plan of the type has none.
        **Derivative:** $\bar A = -A^{-\top}\mathrm{diag}(\bar x)A^{-\top}$.
        """
        if self.plan.diagonal_of_inverse is None:
            raise NoRuleError(
                message(
                    "Factorization.diagonal_of_inverse: the plan of this type has none.",
                    hint="give `tj.linalg.FactorizationPlan` one, or solve for columns of the "
                    "identity.",
                )
            )
        x = self._mapped(self.plan.diagonal_of_inverse)
        return x if self.unit is None else x / unitful(jnp.ones((), _real(x)), self.unit)

    def inv_quad(self, b: Natural) -> Natural:
        r"""`b^H a^-1 b`, a scalar; summed over the columns of a matrix `b`.

        **Arguments:** `b`, `(n,)` or `(..., n, k)`. **Returns:** the unit of `b` squared over that
        of the matrix; real for real arguments.
        For a `LowRankUpdate` with `b` near the span of the update, it keeps its digits;
        `b @ f.solve(b)` loses them.

        **Derivative:** $\bar A = -\bar q\, (A^{-\top}\bar b)(A^{-1}b)^\top$.
        """
        if not is_quantity(b) and self.unit is None:
            return self._inv_quad(b)
        q = UnitFunction("inv_quad", self._inv_quad, "b: u -> u*u", names=("b",))(b)
        return q if self.unit is None else q / unitful(jnp.ones((), _real(q)), self.unit)

    def __repr__(self) -> str:
        unit = "" if self.unit is None else f", unit={self.unit}"
        return f"Factorization({self.n}x{self.n}{unit})"


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["factorization"], meta_fields=["is_adjoint"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class Root:
    """A square root of a factorised matrix, made by `Factorization.root`, to multiply with."""

    factorization: Factorization
    is_adjoint: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.factorization.n, self.factorization.n

    @property
    def H(self) -> Root:
        """The conjugate transpose."""
        return dataclasses.replace(self, is_adjoint=not self.is_adjoint)

    def __matmul__(self, z: Natural) -> Natural:
        """`r @ z`, of `z` `(n,)` or `(..., n, k)`, in the root of the unit times that of `z`.

        **Raises:** `ShapeError` if `z` does not fit.
        """
        raw = functools.partial(self.factorization._root_times, self.is_adjoint)
        unit = self.factorization.unit
        if not is_quantity(z) and unit is None:
            return raw(z)
        y = UnitFunction("root", raw, "z: v -> v", names=("z",))(z)
        if unit is None:
            return y
        return y * unitful(jnp.ones((), _real(y)), unit ** Fraction(1, 2))


def _read(data: Iterable[int]) -> tuple[object, ...]:
    """Deserialize the static part. **Raises:** `RulePackError` if no pack has the functions."""
    aux: PyTree = read_static(data)
    for place in aux[0]:
        module = (place or "").partition(":")[0]
        known = any(f"{module}.".startswith(f"{pack.module}.") for pack in packs())
        if not (known and module in sys.modules) and place is not None:
            raise RulePackError(
                message(
                    "Factorization: no rule pack has a function of an exported program.",
                    f"function: {place or 'one without a name'}",
                    hint="install the pack; functions of its plans are constants of a module.",
                )
            )
    return _plan_at(aux[0]), *aux[1:]


export.register_pytree_node_serialization(
    Factorization,
    serialized_name="tanjax.Factorization",
    # functions of a plan are written as their places
    serialize_auxdata=lambda aux: write_static("Factorization", (_places_of(aux[0]), *aux[1:])),
    deserialize_auxdata=_read,
)


def batched_factorization(op: Operation, a: AbstractArray) -> Factorization:
    """Combine the factorizations of a batch of structured matrices into one."""
    batch = a.batch_shape
    factors = over_batches(op.name, op, (a,), (batch,))
    return dataclasses.replace(factors, batch_ndim=len(batch))


def _paired(b: Natural, x: Natural) -> Natural:
    """Return `b^H x`, over the last two axes."""
    b = as_array(b)
    return jnp.sum(jnp.conj(b) * x, axis=-1 if b.ndim == 1 else (-2, -1))


def _real(x: Natural) -> DType:
    return jnp.finfo(x.dtype).dtype


def units_of_factorization(raw: Function, a: Quantity) -> Factorization:
    """Factorize a quantity: its numbers, with the unit kept in the result."""
    if not a.label.is_linear:
        raise not_linear("factorize", "a", a.label)
    if a.label.is_dimensionless:
        return raw(a.to(one).stored)
    return dataclasses.replace(raw(a.stored), unit=a.label)
