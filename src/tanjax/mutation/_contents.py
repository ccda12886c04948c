"""A function that is given Refs, differentiated by what they hold.

To JAX the derivative by a Ref is another Ref, which the caller has to make. Here the function is
one of what its Refs hold before the call, to its output and to what they hold afterwards. That is
pure, so `tj.grad` and the others differentiate it as any function, with natural cotangents and
units; what the Refs hold afterwards is written when this is done.

    call = Contents("grad", f, (ref, x), {})
    out, after = call(*call.args)            # traces `f`; JAX may transform this
    call.write(after)

Sharp edges. The function is traced: Python cannot branch on its numbers. A Ref that it closes over
is JAX's, and a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax import Array
from jaxtyping import PyTree

from tanjax import transforms, units
from tanjax._errors import AliasError, MutationError, message
from tanjax._typing import Function
from tanjax.arrays import convert, label_of, split_unit
from tanjax.units import Unit

from ._aliases import with_paths
from ._discharge import call_discharged
from ._jax_refs import is_ref, is_view
from ._refs import StructuredRef
from ._transition import is_memory, read
from ._writes import number_for


class Contents:
    """One call of a function with Refs among its arguments.

    **Fields:** `f`, the function; `args`, `kwargs`: those of the call, with what Refs hold.
    """

    def __init__(
        self, where: str, f: Function, args: PyTree, kwargs: PyTree, buffers: PyTree
    ) -> None:
        """**Raises:** `AliasError` for a Ref in two places, also of buffers."""
        self.f, self._name = f, f"{where} of {getattr(f, '__name__', 'a function')}"
        named = {f"argument {i}": x for i, x in enumerate(args)}
        self._check_places({**named, **kwargs, "into": buffers})
        self._given, self._tree = jax.tree.flatten((args, kwargs), is_leaf=is_memory)
        self.args, self.kwargs = read((args, kwargs))
        held = self._tree.flatten_up_to((self.args, self.kwargs))
        self._labels = {i: label_of(held[i]) for i, x in enumerate(self._given) if _refs(x)}

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
        """The output, and what those Refs hold that are written, by their number."""
        values = self._tree.flatten_up_to((args, kwargs))
        full = [self._given[i] if i in self._labels else x for i, x in enumerate(values)]
        for i, label in self._labels.items():
            values[i] = number_for(label, values[i])  # the caller may have rescaled a quantity
        leaves, tree = jax.tree.flatten(jax.tree.unflatten(self._tree, full))
        refs = {i: x for i, x in enumerate(leaves) if is_ref(x)}
        out, after = call_discharged(self.f, self._name, jax.tree.leaves(values), tree, refs)
        return out, {n: after[i] for n, i in enumerate(refs) if i in after}

    def write(self, after: dict[int, PyTree]) -> None:
        """Write what the Refs hold after the call."""
        refs = _refs(self._given)
        for i, value in after.items():
            refs[i][...] = value

    def write_tangents(self, tangents: PyTree, after: dict[int, PyTree]) -> None:
        """Write the tangents of that into those tangents which are Refs."""
        given = self._tree.flatten_up_to((tuple(tangents), {}))
        targets: list[tuple[PyTree, Unit, Unit]] = []  # of every Ref, and both units
        for i, label in self._labels.items():
            refs = jax.tree.leaves(given[i], is_leaf=_is_none)
            refs = refs if _refs(refs) else [None] * len(_refs(self._given[i]))
            kept = label_of(given[i]._abstract()) if type(given[i]) is StructuredRef else None
            own = label.delta if label else units.one
            targets += [(ref, own, kept or units.one) for ref in refs]
        for i, value in after.items():
            ref, own, kept = targets[i]
            if is_ref(ref):
                number, rate = split_unit(value)
                ref[...] = convert(number, own * rate, kept).astype(ref.dtype)


_is_none: Callable[[PyTree], bool] = lambda x: x is None


def _refs(tree: PyTree) -> list[PyTree]:
    return [x for x in jax.tree.leaves(tree) if is_ref(x)]


def _contents(
    where: str, f: Function, args: PyTree, kwargs: PyTree, chosen: PyTree, buffers: PyTree
) -> Contents | None:
    """The call, if it is differentiated by a Ref."""
    needed = any(is_ref(x) or is_view(x) for x in jax.tree.leaves(chosen))
    return Contents(where, f, args, kwargs, buffers) if needed else None


transforms.register_contents(_contents)
