"""The facts that a type declares: linear, isometric, injective, Hermitian, visible cotangents."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import arrays

from ._coordinates import canonical
from ._record import Checker, relative_error

RANK = 1e-9  # singular values below this, relative to the largest, are zero


def check_facts(checker: Checker) -> None:
    """Compare the declared facts with the Jacobian."""
    fields, j = checker.fields, checker.jacobian
    rank = _rank(j)
    project = lambda t: fields.vector(canonical(fields.tangent(t)))
    kept = np.asarray(checker.run(jax.vmap(project), np.eye(fields.size)))
    checker.recorder.holds(
        "facts", "`is_injective` is declared, but fields are hidden from the array.",
        not checker.kind.is_injective(checker.x) or rank == _rank(kept),
        f"dimension of the fields: {_rank(kept)}", f"rank of J: {rank}",
    )  # fmt: skip
    gap = relative_error(checker.inverse, j.T)
    checker.recorder.holds(
        "facts", "`is_isometric` is declared, but J⁺ is not Jᵀ.",
        not checker.kind.is_isometric(checker.x) or gap <= checker.tolerance,
        f"relative error: {gap:.1e}, tolerance: {checker.tolerance:.1e}",
    )  # fmt: skip
    x = checker.x
    dense = np.asarray(arrays.destructure(x)) if arrays.is_hermitian(x) else np.zeros((1, 1))
    checker.recorder.holds(
        "facts", "`is_hermitian` is declared, but the array is not.",
        np.allclose(dense, np.conj(dense.swapaxes(-1, -2)), rtol=checker.tolerance),
        f"got: {dense.tolist()}",
    )  # fmt: skip
    _check_linear(checker)


def _check_linear(checker: Checker) -> None:
    if not checker.kind.is_linear(checker.x):
        return
    other = checker.fields.vector(canonical(checker.fields.tree(checker.field_vector)))
    got = checker.dense(2 * checker.point - 3 * other)
    want = 2 * checker.dense(checker.point) - 3 * checker.dense(other)
    gap = relative_error(np.asarray(got), np.asarray(want))
    checker.recorder.holds(
        "facts", "`is_linear` is declared, but to_dense is not linear.",
        gap <= checker.tolerance, f"relative error: {gap:.1e}",
    )  # fmt: skip


def check_visible(checker: Checker) -> None:
    """Check that `is_visible` separates cotangents that came through the array from hidden ones."""
    x, fields, recorder = checker.x, checker.fields, checker.recorder
    seen = checker.jacobian.T @ np.asarray(checker.dense_vector)
    visible = bool(arrays.is_visible(x, fields.cotangent(jnp.asarray(seen))))
    recorder.holds("natural", "is_visible is false for a cotangent Jᵀ Y.", visible)
    hidden = np.asarray(checker.field_vector)
    hidden = hidden - checker.inverse @ (checker.jacobian @ hidden)
    if np.linalg.norm(hidden) > 1e-6:
        hidden *= np.linalg.norm(seen) / np.linalg.norm(hidden)
        wrong = bool(arrays.is_visible(x, fields.cotangent(jnp.asarray(seen + hidden))))
        recorder.holds("natural", "is_visible is true for a hidden cotangent.", not wrong)


def check_tangents(checker: Checker) -> None:
    """The vector space of structural tangents: zero, sums, dimension, inner product."""
    x, holds = checker.x, checker.recorder.holds
    kind, zero = arrays.tangent_type(x), arrays.zero_tangent(x)
    holds("tangents", "tangent_type of zero_tangent differs.",
          arrays.tangent_type(zero) == kind)  # fmt: skip
    holds("tangents", "tangent_type has the wrong dimension.",
          kind.dimension == checker.fields.size)  # fmt: skip
    t = checker.fields.tangent(checker.field_vector)
    twice = checker.fields.vector(arrays.add_tangents(t, t))
    checker.recorder.compare("tangents", "t + t", twice, 2 * checker.field_vector, 1e-15)
    same = checker.fields.vector(arrays.add_tangents(t, zero))
    checker.recorder.compare("tangents", "t + 0", same, checker.field_vector, 0.0)
    bar = checker.fields.cotangent(checker.field_vector)
    got = arrays.inner_product(bar, t)
    want = jnp.sum(checker.field_vector**2)
    checker.recorder.compare(
        "tangents", "inner_product", got, want, 1e-14, zero=not checker.fields.size
    )


def pseudo_inverse(j: np.ndarray) -> np.ndarray:
    """Return J⁺, by a singular value decomposition."""
    return np.linalg.pinv(j, rcond=RANK) if j.size else j.T


def _rank(j: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(j, rtol=RANK)) if j.size else 0
