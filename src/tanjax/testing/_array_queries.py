"""The queries of an array type: products, transposes, sums, blocks.

Rules query a matrix and never form it. So a wrong `apply` is a wrong product in every rule, even if
`to_dense` and the four maps are right. Every query is compared with the dense array: its value and
both derivatives, under `jit` and `vmap`, for one and several right-hand sides, real and complex.
The operations that most programs use are compared too.

Sharp edge: a query may use the storage invariant of its type, so derivatives are compared along
tangents that keep it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays, operations
from tanjax._typing import Function
from tanjax.arrays import AbstractArray

from ._coordinates import canonical, random, single_precision, wide_leaves
from ._lattice import members
from ._record import SINGLE, Checker, relative_error
from ._units import numbers

STAGE = "queries"


def operands(formed: PyTree) -> dict[str, PyTree]:
    """Return right-hand sides for a matrix: one, two, three complex ones, and one from the left."""
    m, n = formed.shape
    pick = lambda shape, seed: random(int(np.prod(shape)), seed).reshape(shape)
    found = {
        "vector": pick((n,), 60).astype(formed.dtype),
        "two": pick((n, 2), 61).astype(formed.dtype),
        "complex": pick((n, 3), 65) + 1j * pick((n, 3), 62),
        "left": pick((2, m), 63).astype(formed.dtype),
    }
    return jax.device_put(found)


def answers(x: PyTree, b: dict[str, PyTree], others: dict[str, PyTree]) -> dict[str, PyTree]:
    """Query an array, structured or dense; the answers are dense."""
    get = {"total": _ask(x, "total", jnp.sum), "conj": _ask(x, "conj", jnp.conj)}
    inner_product = lambda y: _ask(
        x, "inner_product", lambda d: jnp.sum(d * arrays.destructure(y)), y
    )
    get |= {f"inner_product with {name}": inner_product(y) for name, y in others.items()}
    if jnp.ndim(x) == 2:
        get |= _answers_of_matrix(x, b)
    get |= {f"{LATER}{name}": y for name, y in _operations(x, b).items()}
    return jax.tree.map(arrays.destructure, get, is_leaf=arrays.is_structured)


def _answers_of_matrix(x: PyTree, b: dict[str, PyTree]) -> dict[str, PyTree]:
    """Return products, transposes, and parts."""
    m, n = x.shape
    apply = lambda v: _ask(x, "apply", lambda d: d @ v, v)
    flipped = _ask(x, "transposed", lambda d: d.T)
    if flipped.shape != (n, m):
        raise ValueError(f"`transposed` has the shape {flipped.shape} for {(n, m)}")
    get = {f"apply to {name}": apply(b[name]) for name in ("vector", "two", "complex")}
    get |= {
        "apply, mapped over columns": jax.vmap(apply, 1, 1)(b["two"]),
        "transposed": flipped,
        "transposed, applied": _ask(flipped, "apply", lambda d: d @ b["left"].T, b["left"].T),
        "diagonal": _ask(x, "diagonal", jnp.diagonal),
    }
    for k in {1, -1, n - 1, 1 - m}:
        if -m < k < n:
            off = _ask(x, "off_diagonal", lambda d, k=k: jnp.diagonal(d, k), k)
            get[f"off_diagonal({k})"] = off
    i, j = np.divmod(np.arange(m * n)[::-1], max(n, 1))
    get["entries_at"] = _ask(x, "entries_at", lambda d: d[i, j], i, j)
    for rows, columns in ((slice(0, m), slice(0, n)), (slice(1, m), slice(1, n)),
                          (slice(m // 2, m), slice(0, n // 2))):  # fmt: skip
        name = f"submatrix [{rows.start}:{rows.stop}, {columns.start}:{columns.stop}]"
        get[name] = _ask(x, "submatrix", lambda d, r=rows, c=columns: d[r, c], rows, columns)
    return get


LATER = "operation: "  # operations use queries, so queries are judged first and named


def _operations(x: PyTree, b: dict[str, PyTree]) -> dict[str, PyTree]:
    """Return results of the operations that most programs use."""
    turn = jnp.asarray(0.6 + 0.8j, jnp.result_type(x.dtype, jnp.complex64))
    get = {
        "sum of itself and itself": operations.add(x, x),
        "2.5 times it": operations.multiply(x, jnp.asarray(2.5, x.dtype)),
        "it over 2.5": operations.divide(x, jnp.asarray(2.5, x.dtype)),
        "a complex multiple of it": operations.multiply(x, turn),
    }
    if jnp.ndim(x) == 2:
        get |= {"b @ it": operations.matmul(b["left"], x), "trace": operations.trace(x)}
    return get


def _ask(x: PyTree, query: str, define: Function, *args: PyTree) -> PyTree:
    return getattr(x, query)(*args) if isinstance(x, AbstractArray) else define(x)


def check_queries(checker: Checker) -> None:
    """Compare every query of a type with its dense array; foreign classes have no queries."""
    with jax.numpy_dtype_promotion("standard"):  # products of real and complex are meant
        _check_queries(checker)


def _check_queries(checker: Checker) -> None:
    x, formed, fields = numbers(checker.x), checker.formed, checker.fields
    if not isinstance(x, AbstractArray):
        return
    b = operands(formed) if formed.ndim == 2 else {}
    others = {k: v for k, v in members(x, formed).items() if k in PAIRED}
    if getattr(x, "definite", False):
        spectrum = np.linalg.eigvalsh(np.asarray(checker.formed))
        checker.recorder.holds(
            STAGE, "`definite` is promised, and the matrix is not positive definite.",
            bool(np.all(spectrum > 0)), f"eigenvalues: {spectrum.tolist()}",
        )  # fmt: skip
    _check_batch(checker)

    def ask(vector: PyTree) -> dict[str, PyTree]:
        return answers(numbers(canonical(fields.tree(vector))), _moved(b, vector), others)

    def define(vector: PyTree) -> dict[str, PyTree]:
        dense = numbers(arrays.destructure(canonical(fields.tree(vector))))
        return answers(dense, _moved(b, vector), others)

    both = lambda v: [_both_modes(f, v, checker.field_vector) for f in (ask, define)]
    got, want = checker.run(both, checker.point)
    order = lambda name: (name.startswith(LATER), not name.startswith("apply to"), name)
    for name in sorted(want[0], key=order):
        for what, here, there in (("", got[0], want[0]), (", its derivative", got[1], want[1])):
            checker.recorder.compare(
                STAGE,
                f"{name}{what}",
                here[name],
                there[name],
                checker.tolerance,
                scale=_size(checker),
            )
    if fields.size:
        _compare_pullbacks(checker, ask, define, got[2], want[2])
    _check_single(checker, want[0], _moved(b, checker.point), others)
    if checker.generic:
        _check_sensitivity(checker)


def _moved(b: dict[str, PyTree], vector: PyTree) -> dict[str, PyTree]:
    """Return right-hand sides that move with the fields, so that derivatives include both."""
    factor = 1 + 0.1 * vector[0] if vector.size else jnp.ones(())
    return {name: factor.astype(v.dtype) * v for name, v in b.items()}


PAIRED = ("dense", "itself", "Fill", "Zero", "Outer", "Diagonal", "Sum with Outer")


def _both_modes(f: Function, vector: PyTree, along: PyTree) -> PyTree:
    """Return answers, their derivatives along one direction, and one pullback of all together."""
    values, moved = jax.jvp(f, (vector,), (along,))
    _, pull = jax.vjp(lambda v: _together(f(v)), vector)
    return values, moved, pull(random(_together(values).size, 64))[0]


def _together(values: dict[str, PyTree]) -> PyTree:
    leaves = jax.tree.leaves(values)
    return jnp.concatenate([p.ravel() for y in leaves for p in (jnp.real(y), jnp.imag(y))])


def _compare_pullbacks(
    checker: Checker, ask: Function, define: Function, got: PyTree, want: PyTree
) -> None:
    """Compare all at once; after a mismatch compare one by one, to name the query."""
    if relative_error(np.asarray(got), np.asarray(want)) > checker.tolerance:
        for name in sorted(ask(checker.point), key=lambda name: name.startswith(LATER)):
            read = lambda f, name=name: lambda v: jnp.sum(jnp.cos(_together({"": f(v)[name]})))
            here, there = (jax.grad(read(f))(checker.point) for f in (ask, define))
            what = f"{name}, its cotangent"
            checker.recorder.compare(STAGE, what, here, there, checker.tolerance)
    what = "the cotangent of all queries"
    checker.recorder.compare(STAGE, what, got, want, checker.tolerance)


def _check_single(checker: Checker, want: PyTree, b: PyTree, others: PyTree) -> None:
    """Compare in single precision: no answer may widen, and the numbers must agree."""
    small, b, others = map(single_precision, (checker.x, b, others))
    got = checker.run(lambda x, b, others: answers(numbers(x), b, others), small, b, others)
    wide = wide_leaves(got)
    checker.recorder.holds(STAGE, "a query of single precision is in double.", not wide, *wide)
    for name, value in got.items():
        what = f"{name}, in single precision"
        checker.recorder.compare(STAGE, what, value, want[name], SINGLE, scale=_size(checker))


def _size(checker: Checker) -> float:
    """Return the size of the largest entry: terms that cancel in a query have that size."""
    return float(np.max(np.abs(np.asarray(checker.formed)), initial=0.0))


def _check_sensitivity(checker: Checker) -> None:
    """Check that `apply` in place of `transposed` fails, unless the type is symmetric by nature."""
    if checker.formed.ndim != 2 or checker.formed.shape[0] != checker.formed.shape[1]:
        return
    dense = np.asarray(checker.formed)
    moved = np.asarray(checker.form_at(checker.point + 0.1 * checker.field_vector))
    blind = relative_error(dense.T, dense) <= checker.tolerance
    checker.recorder.holds(
        STAGE, "the check passes when the array is transposed.",
        not blind or relative_error(moved.T, moved) <= checker.tolerance,
        hint="choose values without accidental symmetry.",
    )  # fmt: skip


def _check_batch(checker: Checker) -> None:
    """Check that leading axes on every leaf are a batch, as `shape` declares."""
    if not checker.fields.size:
        return
    rows = jnp.stack([checker.point, checker.point + 0.1 * checker.field_vector])
    batch = numbers(jax.vmap(checker.fields.tree)(rows))
    if batch.core_ndim is None:
        return  # the type declares no batches
    want = (2, *checker.formed.shape)
    checker.recorder.holds(
        STAGE, "`shape` of a batch lacks its leading axis.", tuple(batch.shape) == want,
        f"expected: {want}", f"got: {tuple(batch.shape)}",
    )  # fmt: skip
