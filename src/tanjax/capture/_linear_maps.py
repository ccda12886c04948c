"""Pullbacks and pushforwards as values: `tj.vjp` is an equation, and the call of its map another.

`tj.vjp` returns a value and a function, and a function cannot be a result of an equation. But this
function is a map between known spaces with residuals that are a pytree. So under capture it is one
typed value, which loops, branches and programs can return.

    b:f32[] c:Pullback<f32[] -> f32[3]> = vjp[f={ ... }] a
    d:f32[3] = pullback c 1.0

Sharp edges. The residuals are JAX's, and change from version to version. So the type names the
cotangents that the map takes and gives, not the residuals. Capture changes `tj.vjp` only inside of
captured functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jaxtyping import PyTree

from tanjax import transforms
from tanjax._marks import ACTIVE, capturing, marked
from tanjax._typing import Function

from ._higher_order import F, higher_order, in_place_of
from ._types import CapturedClass, is_typed, type_text


class LinearMap(metaclass=CapturedClass):
    """The derivative of a function at a point.

    **Fields:** `primals`, the point; `out`, the value there; `in_fields`, JAX's map of structural
    (co)tangents, a pytree of residuals.
    """

    __slots__ = ("in_fields", "out", "primals")
    equation = ""

    def __init__(self, primals: Sequence[PyTree], out: PyTree, in_fields: Function) -> None:
        self.primals, self.out, self.in_fields = tuple(primals), out, in_fields

    def __init_subclass__(cls) -> None:
        flatten = lambda x: ((x.primals, x.out, x.in_fields), None)
        keys = [jax.tree_util.GetAttrKey(k) for k in ("primals", "out", "in_fields")]
        jax.tree_util.register_pytree_with_keys(
            cls,
            lambda x: (tuple(zip(keys, flatten(x)[0], strict=True)), None),
            lambda _, fields: cls(*fields),
            flatten,
        )

    def __call__(self, *given: PyTree) -> PyTree:
        """Apply the map to natural (co)tangents; under capture this is one equation."""
        if ACTIVE[0] and capturing():
            target = call_linear_map
            # Nothing is cached: the trees of residuals hold programs, and die with the capture.
            return marked("pullback", self.equation, target, _applied, (self, *given), {}, {})
        return self.apply(*given)

    def apply(self, *given: PyTree) -> PyTree:
        raise NotImplementedError

    def type_text(self) -> str:
        """Return the spaces between which it maps, as text."""
        return f"{type(self).__name__}<{self.spaces()}>"

    def spaces(self) -> str:
        raise NotImplementedError


def call_linear_map(linear_map: LinearMap, *given: PyTree) -> PyTree:
    """Run an equation `pullback` or `pushforward`."""
    return linear_map(*given)


def _applied(linear_map: LinearMap, *given: PyTree) -> PyTree:
    return linear_map.apply(*given)


class Pullback(LinearMap):
    """The map from natural cotangents of the value to those of the primals, as in `tj.vjp`."""

    __slots__ = ()
    equation = "pullback"

    def apply(self, out_bar: PyTree) -> PyTree:
        return transforms.natural_pullback(self.primals, self.out, self.in_fields, out_bar)

    def spaces(self) -> str:
        return f"{_types(self.out)} -> {_types(self.primals)}"


class Pushforward(LinearMap):
    """The map from natural tangents of the primals to that of the value, as in `tj.linearize`."""

    __slots__ = ()
    equation = "pushforward"

    def apply(self, *tangents: PyTree) -> PyTree:
        return transforms.natural_pushforward(self.primals, self.out, self.in_fields, *tangents)

    def spaces(self) -> str:
        return f"{_types(self.primals)} -> {_types(self.out)}"


def _types(tree: PyTree) -> str:
    return ", ".join(type_text(x) for x in jax.tree.leaves(tree, is_leaf=is_typed))


def _with_map(plain: F, in_fields: Function, kind: type[LinearMap]) -> F:
    """Wrap `tj.vjp` or `tj.linearize`: under capture an equation with a typed map."""

    @higher_order(name=plain.__name__)
    def equation(f: Function, *primals: PyTree, has_aux: bool = False) -> PyTree:
        out, map_in_fields, *aux = in_fields(f, *primals, has_aux=has_aux)
        return out, kind(primals, out, map_in_fields), *aux

    @in_place_of(plain)
    def public(f: Function, *primals: PyTree, has_aux: bool = False) -> PyTree:
        call = equation if ACTIVE[0] and capturing() else plain
        return call(f, *primals, **({"has_aux": True} if has_aux else {}))

    public.equation = equation  # type: ignore[attr-defined]  # read by `tj.programs.handles`
    return public


vjp = _with_map(transforms.vjp, transforms.vjp_in_fields, Pullback)
linearize = _with_map(transforms.linearize, transforms.linearize_in_fields, Pushforward)
