"""Uses of Refs in a jaxpr: which of them it writes, and how it reads them.

A loop carries the memory that its body writes and keeps the rest as constants, so the uses must be
known before the body runs. Inner jaxprs are analysed once each.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence

from tanjax._jaxpr_types import JaxEquation, JaxVariable, OpenJaxpr, Steps
from tanjax._jaxprs import inner_jaxprs
from tanjax.jaxprs import LOOPS, Kind, given, kind_of, nested_jaxprs, opened

from ._access import path_of

_HANDED = (Kind.JIT, Kind.CHECKPOINT, *LOOPS, Kind.BRANCH)
_USES: weakref.WeakKeyDictionary[OpenJaxpr, tuple[frozenset[str], ...]] = (
    weakref.WeakKeyDictionary()
)
_MAKES: weakref.WeakKeyDictionary[OpenJaxpr, bool] = weakref.WeakKeyDictionary()


def bodies(eqn: JaxEquation) -> Iterator[tuple[Steps, Sequence[JaxVariable]]]:
    """Yield the jaxprs of an equation that may receive Refs, with their operands."""
    if kind_of(eqn) in _HANDED:
        yield from zip(nested_jaxprs(eqn), given(eqn, eqn.invars), strict=True)


def uses(program: Steps) -> tuple[frozenset[str], ...]:
    """Return the uses of each argument of a jaxpr: "written", "whole", "indexed"."""
    jaxpr = opened(program)[0]
    if jaxpr not in _USES:
        found: dict[JaxVariable, set[str]] = {v: set() for v in jaxpr.invars}
        for eqn in jaxpr.eqns:
            _note(eqn, found)
        _USES[jaxpr] = tuple(frozenset(found[v]) for v in jaxpr.invars)
    return _USES[jaxpr]


def _note(eqn: JaxEquation, found: dict[JaxVariable, set[str]]) -> None:
    name = eqn.primitive.name
    if name in ("get", "swap", "addupdate"):
        first = 1 if name == "get" else 2
        numbers = [getattr(v, "val", None) for v in eqn.invars[first:]]
        path = path_of(eqn.params["tree"], [0 if n is None else n for n in numbers])
        kind = "written" if name != "get" else "whole" if path.is_whole else "indexed"
        found.get(eqn.invars[0], set()).add(kind)
        return
    pairs = list(bodies(eqn))
    for inner, operands in pairs:
        for v, more in zip(operands, uses(inner), strict=True):
            if not hasattr(v, "val"):
                found.get(v, set()).update(more)
    if not pairs:
        for v in eqn.invars:
            if not hasattr(v, "val"):
                found.get(v, set()).add("whole")


def makes_refs(program: Steps) -> bool:
    """True if a jaxpr makes Refs, also in the functions that it calls."""
    jaxpr = opened(program)[0]
    if jaxpr not in _MAKES:
        _MAKES[jaxpr] = any(map(equation_makes_refs, jaxpr.eqns))
    return _MAKES[jaxpr]


def equation_makes_refs(eqn: JaxEquation) -> bool:
    """True if an equation makes a Ref, itself or in one of its jaxprs."""
    if eqn.primitive.name in ("new_ref", "empty_ref"):
        return True
    return any(makes_refs(inner) for _, inner in inner_jaxprs(eqn))
