"""Functions of JAX's own that a traced program calls, with the flags they were called with.

Flags (`upper=True`, `trans=1`, an offset) are no operands of a call: the program inside of it says
which they were. So each function stands here once for every choice of flags that has an operation,
and a call is one of them if its program is, word for word, the one that JAX traces for that choice.
What is not found is entered, or becomes dense; a flag is never left out.

    jax.scipy.linalg.solve_triangular(a, b, lower=True)   # is `solve_triangular(0, True, False)`

Not found, because JAX traces them to primitives without a name: `vdot` and `outer` (which reshape
and broadcast), `einsum("ii->i")`, indexing. Those become dense, visibly.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import NotImplementedType
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import PyTree

from tanjax import _compat, operations as ops
from tanjax._jaxpr_types import JaxEquation, Readable
from tanjax._typing import DType, Function, Shape
from tanjax.arrays import is_structured

from .. import _as_numpy as as_numpy
from . import _meanings as mean

_BOTH = (False, True)
_OFFSETS = (0, 1, -1, 2, -2, 3, -3)
_PARAMETERS = {"custom_jvp_call": "call_jaxpr"}  # where the program of a call is; elsewhere `jaxpr`


# Results of an equation, where the types of its operands allow them.
Results: TypeAlias = list[PyTree] | NotImplementedType
Kinds: TypeAlias = tuple[tuple[Shape, DType, bool], ...]  # shapes, dtypes, whether they are weak


class Choice(NamedTuple):
    """A call of JAX's with some flags, and what it is for structured arrays."""

    call: Function
    run: Function


def named(eqn: JaxEquation, operands: list[PyTree]) -> Results:
    """The results of a function of JAX's for which there is an operation; or `NotImplemented`."""
    key = _PARAMETERS.get(eqn.primitive.name, "jaxpr")
    choices = _choices().get(_compat.jax_function_of(eqn, key) or "", ())
    if not choices or any(len(x.shape) > 2 for x in operands if is_structured(x)):
        return NotImplemented
    operands = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in operands]  # constants
    text = _text(eqn.params[key])
    avals = tuple((v.aval.shape, v.aval.dtype, v.aval.weak_type) for v in eqn.invars)
    for choice in choices:
        if text is not None and text == _program(choice.call, avals):
            out = choice.run(*operands)
            if out is not NotImplemented:
                out = list(out) if isinstance(out, tuple | list) else [out]
                return out if as_traced(out, eqn) else NotImplemented
    return NotImplemented


def as_traced(out: list[PyTree], eqn: JaxEquation) -> bool:
    """Whether results have the shapes and dtypes that the equations after it were traced for."""
    kinds = [(tuple(x.shape), x.dtype) for x in out]
    return kinds == [(tuple(v.aval.shape), v.aval.dtype) for v in eqn.outvars]


@functools.lru_cache(maxsize=1024)
def _program(function: Function, avals: Kinds) -> str | None:
    """The text of a function's program, as a call of it with nothing but arrays holds it."""
    structs = [jax.ShapeDtypeStruct(s, d, weak_type=weak) for s, d, weak in avals]
    try:
        closed = jax.make_jaxpr(function)(*structs)
    except (TypeError, ValueError):  # not for these shapes or dtypes
        return None
    (eqn,) = closed.jaxpr.eqns if len(closed.jaxpr.eqns) == 1 else (None,)
    if eqn is None:
        return None
    return _text(eqn.params.get(_PARAMETERS.get(eqn.primitive.name, "jaxpr")))


@functools.lru_cache(maxsize=256)
def _text(closed: Readable | None) -> str | None:
    """A program in words; `None` of one with constants, which are not in its text."""
    return None if closed is None or closed.consts else str(closed.jaxpr)


@functools.cache
def _choices() -> dict[str, list[Choice]]:
    """Every choice of flags by the name of JAX's function inside, which SciPy's often hide."""
    found: dict[str, list[Choice]] = {}
    for part in (_systems, _factors, _spectra, _functions, _parts):
        for name, call, run in part():
            found.setdefault(name, []).append(Choice(call, run))
    return found


_Entries = Iterator[tuple[str, Function, Function]]
_with = functools.partial


def _systems() -> _Entries:
    yield "solve", jnp.linalg.solve, ops.solve
    yield "_solve", jsl.solve, ops.solve  # also for "sym" and "her", of which JAX reads everything
    for lower in _BOTH:
        positive = _with(jsl.solve, assume_a="pos", lower=lower)
        yield "_solve", positive, mean.hermitian(ops.solve)
        yield "_cho_solve", _with(_cho_solve, lower), mean.cho_solve(lower)
        for trans in range(3):
            for unit in _BOTH:
                call = _with(_solve_triangular, trans, lower, unit)
                yield "_solve_triangular", call, mean.solve_triangular(trans, lower, unit)
    for trans in range(3):
        yield "lu_solve", _with(_lu_solve, trans), mean.lu_solve(trans)
    yield "inv", jnp.linalg.inv, ops.inv
    yield "det", jnp.linalg.det, ops.det
    for method in ("lu", "qr"):
        yield "slogdet", _with(jnp.linalg.slogdet, method=method), ops.slogdet
    yield "pinv", jnp.linalg.pinv, mean.pinv
    yield "_pinv", jnp.linalg.pinv, mean.pinv
    yield "_pinv", _with(jnp.linalg.pinv, hermitian=True), mean.hermitian(mean.pinv)
    yield "_lstsq", jnp.linalg.lstsq, mean.lstsq


def _solve_triangular(trans: int, lower: bool, unit: bool, a: PyTree, b: PyTree) -> PyTree:
    return jsl.solve_triangular(a, b, trans=trans, lower=lower, unit_diagonal=unit)


def _cho_solve(lower: bool, c: PyTree, b: PyTree) -> PyTree:
    return jsl.cho_solve((c, lower), b)


def _lu_solve(trans: int, packed: PyTree, pivots: PyTree, b: PyTree) -> PyTree:
    return jsl.lu_solve((packed, pivots), b, trans=trans)


def _factors() -> _Entries:
    for upper in _BOTH:
        for symmetrize in _BOTH:
            flags = {"upper": upper, "symmetrize_input": symmetrize}
            yield "cholesky", _with(jnp.linalg.cholesky, **flags), mean.cholesky(upper)
        yield "_cholesky", _with(jsl.cholesky, lower=not upper), mean.cholesky(upper)
    for permute_l in _BOTH:
        yield "lu", _with(jsl.lu, permute_l=permute_l), mean.lu(permute_l)
    yield "lu_factor", jsl.lu_factor, mean.lu_factor
    for mode in ("reduced", "complete", "r"):
        yield "qr", _with(jnp.linalg.qr, mode=mode), mean.qr(mode, r_alone=mode == "r")
    for name, mode in (("full", "complete"), ("economic", "reduced"), ("r", "r")):
        yield "_qr", _with(jsl.qr, mode=name), mean.qr(mode, r_alone=mode == "r")


def _spectra() -> _Entries:
    for uplo in ("L", "U"):
        for symmetrize in _BOTH:
            flags = {"UPLO": uplo, "symmetrize_input": symmetrize}
            yield "eigh", _with(jnp.linalg.eigh, **flags), mean.eigh
            run = mean.hermitian(ops.eigvalsh)
            yield "eigvalsh", _with(jnp.linalg.eigvalsh, **flags), run
        lower = uplo == "L"
        yield "_eigh", _with(jsl.eigh, lower=lower), mean.eigh
        values = _with(jsl.eigh, lower=lower, eigvals_only=True)
        yield "_eigh", values, mean.hermitian(ops.eigvalsh)
    for full in _BOTH:
        yield "svd", _with(jnp.linalg.svd, full_matrices=full), mean.svd(full)
        yield "_svd", _with(jsl.svd, full_matrices=full), mean.svd(full)
        for name, svd in (("svd", jnp.linalg.svd), ("_svd", jsl.svd)):
            yield name, _with(svd, full_matrices=full, compute_uv=False), as_numpy.singular_values
    hermitian = _with(jnp.linalg.svd, hermitian=True, compute_uv=False)
    yield "svd", hermitian, mean.hermitian(as_numpy.singular_values)


def _functions() -> _Entries:
    yield "expm", jsl.expm, ops.expm
    yield "expm", _with(jsl.expm, upper_triangular=True), mean.expm_of_triangle
    yield "_sqrtm", jsl.sqrtm, ops.complex_sqrtm
    for method in ("schur", "eigen"):
        call = _with(jsl.solve_sylvester, method=method)
        yield "solve_sylvester", call, ops.solve_sylvester
    for order in (None, "fro", "nuc", 1, -1, 2, -2, jnp.inf, -jnp.inf):
        norm, number = _with(ops.norm, ord=order), _with(ops.condition_number, p=order)
        yield "norm", _with(jnp.linalg.norm, ord=order), mean.matrices(norm)
        yield "cond", _with(jnp.linalg.cond, p=order), mean.matrices(number)


def _parts() -> _Entries:
    yield "trace", jnp.trace, mean.trace_at
    for k in _OFFSETS:
        yield "diagonal", _with(jnp.diagonal, offset=k), mean.diagonal(k)
        yield "_diag", _with(jnp.diag, k=k), mean.matrices(mean.diagonal(k))
        yield "tril", _with(jnp.tril, k=k), mean.cut_at(True, k)
        yield "triu", _with(jnp.triu, k=k), mean.cut_at(False, k)
    yield "kron", jnp.kron, mean.matrices(ops.kron)
    yield "block_diag", jsl.block_diag, mean.matrices(mean.block_diag)
