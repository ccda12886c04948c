"""Derivatives of a function with Ref arguments, with respect to their contents.

In JAX the derivative with respect to a Ref is another Ref, which the caller must make. Here the
function maps the contents of its Refs before the call to its output and their contents afterwards.
That is pure, so `tj.grad` and the others differentiate it like any function, with natural
cotangents and units. The new contents are written to the Refs at the end.

    call = Contents("grad", f, (ref, x), {})
    out, after = call(*call.args)            # traces `f`; JAX may transform this
    call.write(after)

Sharp edges. The function is traced: Python cannot branch on its numbers. A Ref that it closes over
is JAX's, and a constant.
"""

from __future__ import annotations

import jax
from jax import Array
from jaxtyping import PyTree

from tanjax import transforms, units
from tanjax._errors import AliasError, MutationError, message
from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.quantities import convert, is_quantity, label_of, split_unit

from ._aliases import with_paths
from ._buffers import match_arguments
from ._discharge import call_discharged, discharge
from ._jax_refs import is_ref, is_view
from ._refs import StructuredRef
from ._transition import read
from ._uses import makes_refs


class Contents:
    """One call of a function with Refs among its arguments.

    **Fields:** `f`, the function; `args`, `kwargs`: of the call, with the contents of Refs.
    """

    def __init__(
        self, where: str, f: Function, args: PyTree, kwargs: PyTree, buffers: PyTree
    ) -> None:
        """**Raises:** `AliasError` for a Ref in two places, also of buffers."""
        self.f, self._name = f, f"{where} of {getattr(f, '__name__', 'a function')}"
        named = {f"argument {i}": x for i, x in enumerate(args)}
        self._check_places({**named, **kwargs, "into": buffers})
        leaves, self._tree = jax.tree.flatten((args, kwargs))
        self._refs = {i: x for i, x in enumerate(leaves) if is_ref(x)}
        self.args, self.kwargs = read((args, kwargs))

    def _check_places(self, given: dict[str, PyTree]) -> None:
        seen: dict[int, str] = {}
        for name, tree in given.items():
            for place, leaf in with_paths(name, tree):
                if is_view(leaf):
                    raise MutationError(
                        message(
                            f"{self._name}: `{place}` is a view of a Ref.",
                            hint="pass the whole Ref, and take the view inside of the function.",
                        )
                    )
                if is_ref(leaf) and seen.setdefault(id(leaf), place) != place:
                    raise AliasError(
                        message(
                            f"{self._name}: `{seen[id(leaf)]}` and `{place}` are the same memory.",
                            "why: each memory has one state after the call, and one cotangent.",
                            hint="pass a copy, `tj.new_ref(ref[...])`, or one Ref in one place.",
                        )
                    )

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> tuple[PyTree, dict[int, Array]]:
        """Return the output, and the new contents of written Refs, by their places."""
        leaves = jax.tree.leaves((args, kwargs))
        return call_discharged(self.f, self._name, leaves, self._tree, self._refs)

    def write(self, after: dict[int, PyTree]) -> None:
        """Write the new contents to the Refs."""
        for i, value in after.items():
            self._refs[i][...] = value

    def write_tangents(self, tangents: PyTree, after: dict[int, PyTree]) -> None:
        """Write the tangents of the new contents to those tangents that are Refs."""
        primals, tree = jax.tree.flatten(self.args, is_leaf=is_structured)
        places = iter(range(len(jax.tree.leaves(self.args))))
        for x, t in zip(primals, tree.flatten_up_to(tuple(tangents)), strict=True):
            mine = [next(places) for _ in jax.tree.leaves(x)]
            refs = jax.tree.leaves(t, is_leaf=lambda leaf: leaf is None)
            if not any(map(is_ref, refs)):
                continue
            own = x.label.delta if is_quantity(x) else units.one
            kept = label_of(t._abstract()) if type(t) is StructuredRef else None
            for ref, i in zip(refs, mine, strict=True):
                if is_ref(ref) and i in after:
                    number, rate = split_unit(after[i])
                    ref[...] = convert(number, own * rate, kept or units.one)


def _contents(
    where: str, f: Function, args: PyTree, kwargs: PyTree, chosen: PyTree, buffers: PyTree = None
) -> Contents | None:
    """Return the call, if it is differentiated with respect to a Ref."""
    needed = any(is_ref(x) or is_view(x) for x in jax.tree.leaves(chosen))
    return Contents(where, f, args, kwargs, buffers) if needed else None


transforms.register_ref_functions(
    transforms.RefFunctions(_contents, match_arguments, discharge, makes_refs)
)
