"""Inputs of a check must be generic: special values let wrong derivatives pass.

With a symmetric matrix a transposed cotangent passes, with equal entries a permuted one does. With
whole numbers an exact cancellation hides a term.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import PyTree

from tanjax._errors import CheckFailure, message

from ._coordinates import Coordinates, canonical, random


def require_generic(name: str, x: PyTree) -> None:
    """Raise `CheckFailure` if the values of an argument are special."""
    coordinates = Coordinates(x)
    # Random numbers show the storage invariants: symmetry that they keep belongs to the type.
    typical = canonical(coordinates.tree(random(coordinates.size, 5)))
    stored = coordinates.treedef.flatten_up_to(typical)
    for leaf, block, usual in zip(coordinates.leaves, coordinates.blocks, stored, strict=True):
        if block is None or np.size(leaf) < 2:
            continue
        reason = _special(np.asarray(leaf), meant=_is_symmetric(np.asarray(usual)))
        if reason:
            raise CheckFailure(
                message(
                    f"{name}{block.name}: the input is not generic: {reason}.",
                    "why: a wrong derivative could pass at such a value.",
                    hint="use random values, or say `generic=False` if it is meant.",
                )
            )


def _is_symmetric(values: np.ndarray) -> bool:
    square = values.ndim == 2 and values.shape[0] == values.shape[1] > 1
    return bool(square and (_near(values, values.T) or _near(values, values.conj().T)))


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b))


def _special(values: np.ndarray, *, meant: bool) -> str:
    if not np.all(np.isfinite(values)):
        return "not all values are finite"
    if np.all(values == values.flat[0]):
        return "all values are equal"
    if np.all(values == np.round(values)):
        return "all values are whole numbers"
    if _is_symmetric(values) and not meant:
        return "a general matrix is symmetric"
    return ""
