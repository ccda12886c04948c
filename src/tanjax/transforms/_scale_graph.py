"""A view of the exponents of a program: `tj.scale_graph`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import jax
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.quantities import is_quantity, planned

from ._memory import UsesRefs, without_memory, without_refs
from ._packing import free_leaves, without_powers


def scale_graph(fun: Function) -> Function:
    """The scale graph of a function: the losses of plain JAX, and the exponents of `tj.jit`.

    **Arguments:** `fun`, as for `tj.jit`: of arrays, quantities, structured arrays and trees of
    them; a gradient is `tj.scale_graph(tj.grad(f))`. Arguments may be abstract. tanjax assumes that
    the numbers of a quantity of a `jax.ShapeDtypeStruct` are near 1 in its unit, times its power of
    two.

    **Returns:** a function of the same arguments that returns a view of the graph: print it for a
    table, or use `.report()`, `.plot()`, `.to_dot()`, `.to_html()`, `.plan`, `.assign()`.

    >>> import jax.numpy as jnp, tanjax as tj
    >>> view = tj.scale_graph(lambda r: 6.67e-11 * 2e30 * 6e24 / (r * r))(jnp.float32(1.5e11))
    >>> view.plan.identity
    False
    """

    def view(*args: PyTree, **kwargs: PyTree) -> PyTree:
        from tanjax.scale.show.view import GraphView, Source

        leaves, treedef = jax.tree.flatten((args, kwargs))
        shapes: list[PyTree] = []

        def on_leaves(*given: PyTree) -> PyTree:
            a, k = without_powers(jax.tree.unflatten(treedef, given))
            out = without_powers(fun(*a, **k))
            if not shapes:  # later traces recover crushed constants
                shapes.append(out)
            return out

        with planned():
            closed, _, restored, notes = _traced(on_leaves, leaves)
        return GraphView(
            Source(
                getattr(fun, "__name__", "fun"),
                closed,
                tuple(_numbers((args, kwargs))),
                tuple(free_leaves(shapes[0])),
                restored,
                notes,
                _argument_names(fun, args, kwargs),
                _names(shapes[0], "out"),
            )
        )

    return view


def _traced(f: Function, leaves: Sequence[PyTree]) -> PyTree:
    """Trace a function, or its pure form if it makes Refs, and return the results of `trace`."""
    from tanjax.scale import trace

    try:
        return trace(lambda: without_memory(jax.jit(f).trace(*leaves)), f, leaves)
    except UsesRefs:
        pure = without_refs(f)
        return trace(lambda: jax.jit(pure).trace(*leaves), pure, leaves)


# Bits of abstract numbers: users choose a unit, with its power of two, that brings numbers near 1.
_NEAR_ONE = -10.0, 10.0


def _numbers(arguments: PyTree) -> list[PyTree]:
    """Return the leaves of arguments; for abstract leaves with a unit, a magnitude near 1."""
    from tanjax.scale import Magnitude

    found: list[PyTree] = []
    for x in jax.tree.leaves(arguments, is_leaf=is_quantity):
        near = Magnitude(*_NEAR_ONE) if is_quantity(x) else None
        for leaf in jax.tree.leaves(x):
            abstract = isinstance(leaf, jax.ShapeDtypeStruct)
            found.append(near if near and abstract else leaf)
    return found


def _argument_names(
    fun: Function, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> tuple[str, ...]:
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs).arguments
        tops = list(bound) if len(bound) == len(args) + len(kwargs) else []
    except (TypeError, ValueError):
        tops = []
    tops = tops or [f"argument {i}" for i in range(len(args))]
    names: list[str] = []
    for top, value in zip(tops, args, strict=False):
        names += _names(value, top)
    for key in sorted(kwargs):
        names += _names(kwargs[key], key)
    return tuple(names)


def _names(tree: PyTree, top: str) -> tuple[str, ...]:
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return tuple(top + jax.tree_util.keystr(p).removesuffix(".stored") for p, _ in paths)
