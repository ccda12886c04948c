"""Arrays that an array type densifies silently.

A query that forms the dense array gives the right numbers, but at the cost that the type should
avoid, and without a warning. The default queries warn as `tj.densify` asks. So this stage traces
the queries that an author wrote. They must not make an array of the dense shape without a warning.
A closed form of Jᵀ must avoid it for an `Outer` if AD of `apply` does.

Sharp edge: only shapes are compared. The check skips a type with a field of the dense shape, and a
type that stores as many numbers as its array has.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._errors import NoRuleError
from tanjax._typing import Function
from tanjax.arrays import AbstractArray

from ._lattice import wrote
from ._promises import traced_shapes
from ._record import Checker
from ._units import numbers

STAGE = "memory"
LEAST = 3  # rows and columns: smaller shapes occur for other reasons


def check_memory(checker: Checker) -> None:
    """Trace every query that the author wrote, and the closed form of Jᵀ."""
    x: PyTree = numbers(checker.x)
    if not isinstance(x, AbstractArray) or not _can_be_told(x, checker.formed):
        if checker.formed.ndim == 2 and 0 < min(checker.formed.shape) < LEAST:
            checker.recorder.result.notes.append(f"{STAGE}: fewer than {LEAST} rows or columns")
        return
    m, n = checker.formed.shape
    for name, query in _queries(x, m, n).items():
        if wrote(x, name):
            checker.recorder.holds(
                STAGE, f"`{name}` forms the dense {m}x{n} array silently.",
                not _forms(query, x, m, n),
                hint="leave it to the default, or form it by `tj.rules.densified`: both follow the "
                "policy of `tj.densify`.",
            )  # fmt: skip
    if wrote(x, "pullback_of_destructure") and wrote(x, "apply"):
        thin = arrays.Outer(jnp.ones(m, x.dtype), jnp.ones(n, x.dtype))
        checker.recorder.holds(
            STAGE, f"`pullback_of_destructure` forms the dense {m}x{n} array of an `Outer`.",
            not _forms(lambda x: arrays.pullback_of_destructure(x)(thin), x, m, n),
            "AD of `apply` does without.",
            hint="ask an `Outer` for what the type stores, or leave it to the default.",
        )  # fmt: skip


def _can_be_told(x: PyTree, formed: PyTree) -> bool:
    if formed.ndim != 2 or min(formed.shape) < LEAST:
        return False
    leaves = jax.tree.leaves(x)
    shapes = {np.shape(leaf)[-2:] for leaf in leaves}
    return sum(map(np.size, leaves)) < formed.size and not shapes & _both(*formed.shape)


def _both(m: int, n: int) -> set[tuple[int, ...]]:
    return {(m, n), (n, m)}


def _queries(x: PyTree, m: int, n: int) -> dict[str, Function]:
    """Return all queries of a matrix, by the name of their method."""
    ones = lambda *shape: jnp.ones(shape, x.dtype)
    one, thin = slice(0, 1), arrays.Outer(ones(m), ones(n))
    return {
        "apply": lambda x: x.apply(ones(n)),
        "transposed": lambda x: x.transposed(),
        "diagonal": lambda x: x.diagonal(),
        "off_diagonal": lambda x: x.off_diagonal(1),
        "entries_at": lambda x: x.entries_at(np.array([m - 1]), np.array([0])),
        "total": lambda x: x.total(),
        "submatrix": lambda x: x.submatrix(one, one),
        "inner_product": lambda x: x.inner_product(thin),
        "conj": lambda x: x.conj(),
        "scaled": lambda x: _or_nothing(x.scaled(ones())),
        "divided": lambda x: _or_nothing(x.divided(ones())),
    }


def _or_nothing(x: PyTree) -> PyTree:
    return () if x is NotImplemented else x


def _forms(query: Function, x: PyTree, m: int, n: int) -> bool:
    """True if the program of a query forms the dense array without a warning."""
    try:
        with arrays.densify("error"):
            return bool(_both(m, n) & traced_shapes(query, x))
    except NoRuleError:
        return False  # it warns
