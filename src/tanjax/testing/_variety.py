"""Warnings about cases of a rule that are too similar.

With a symmetric matrix a transposed cotangent passes; with real numbers a conjugated one; with two
rows a loop that runs once. The check of one case cannot see a property that all cases of a rule
share. These are warnings, as a rule may be for real numbers only.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays, registry
from tanjax.quantities import stored_of

from ._coordinates import Coordinates, canonical, random


@runtime_checkable
class Called(Protocol):
    """The part of a case that describes its call."""

    @property
    def operation(self) -> registry.Operation: ...
    @property
    def args(self) -> tuple[PyTree, ...]: ...
    @property
    def static(self) -> dict[str, PyTree]: ...


def narrow_cases(cases: Sequence[Called]) -> list[str]:
    """Return properties that all cases of one rule or operation share and should not."""
    by_rule: dict[str, list[Called]] = {}
    rules: dict[str, registry.Rule] = {}
    by_operation: dict[registry.Operation, list[Called]] = {}
    for case in cases:
        by_operation.setdefault(case.operation, []).append(case)
        rule = case.operation.resolve(case.args, case.static).rule
        if rule is not None:
            by_rule.setdefault(rule.convention.name, []).append(case)
            rules[rule.convention.name] = rule
    found = []
    for name, some in by_rule.items():
        for what, holds in (("real", _is_real), ("symmetric", _is_symmetric), ("small", _is_small)):
            if what == "symmetric" and _takes_symmetric_only(rules[name], some):
                continue
            if all(map(holds, some)):
                found.append(f"{name}: {_WORDS[what]}")
    for operation, some in by_operation.items():
        found += _at_default(operation, some)
    return found


_WORDS = {
    "real": "all cases are real; a complex one would show a missing conjugate.",
    "symmetric": "all matrices of all cases are symmetric; a general one would show a transpose.",
    "small": "no case has three rows; rules can be right for two by accident.",
}


def _leaves(case: Called) -> list[PyTree]:
    return jax.tree.leaves(case.args, is_leaf=arrays.is_structured)


def _is_real(case: Called) -> bool:
    return not any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(case.args))


def _is_symmetric(case: Called) -> bool:
    with arrays.densify("allow"):
        dense = [np.asarray(_formed(x)) for x in _leaves(case) if arrays.is_structured(x)]
    square = [d for d in dense if d.ndim == 2 and d.shape[0] == d.shape[1]]
    return bool(dense) and len(square) == len(dense) and all(np.allclose(d, d.T) for d in square)


def _takes_symmetric_only(rule: registry.Rule, cases: Sequence[Called]) -> bool:
    """True if no case could differ: the rule takes only types that are symmetric by nature."""
    rows = [
        row.signature or (object,)
        for row in cases[0].operation.rules.rows.values()
        if row.entry.function is rule.function
    ]
    wanted = {kind for signature in rows for kind in signature}
    given = [x for case in cases for x in _leaves(case) if type(x) in wanted]
    return not wanted & {object, arrays.AbstractArray} and all(map(_is_symmetric_by_nature, given))


def _is_symmetric_by_nature(x: PyTree) -> bool:
    """True if an array stays symmetric when its fields move."""
    fields = Coordinates(x)
    point = fields.vector(x) + random(fields.size, 5)
    with arrays.densify("allow"):
        moved = np.asarray(_formed(canonical(fields.tree(point))))
    return moved.ndim != 2 or (moved.shape[0] == moved.shape[1] and np.allclose(moved, moved.T))


def _formed(x: PyTree) -> PyTree:
    return arrays.destructure(stored_of(x))


def _is_small(case: Called) -> bool:
    return all(max(np.shape(x), default=0) < 3 for x in _leaves(case) if hasattr(x, "shape"))


def _at_default(operation: registry.Operation, cases: Sequence[Called]) -> list[str]:
    """Return static arguments that no case moves from the default; `_variants` moves flags."""
    found = []
    for name, parameter in inspect.signature(operation).parameters.items():
        default = parameter.default
        if default is inspect.Parameter.empty or isinstance(default, bool):
            continue
        if name in operation.static and all(c.static.get(name, default) == default for c in cases):
            found.append(
                f"{operation.name}: no case gives `{name}` another value than {default!r}."
            )
        if name in operation.parameters:
            place = operation.parameters.index(name)
            if all(len(c.args) <= place for c in cases):
                found.append(f"{operation.name}: no case gives `{name}`.")
    return found
