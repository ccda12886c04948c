"""Loops and branches whose carries and results convert to one unit.

JAX compares static data. To JAX a carry that starts in metres and comes back in kilometres is
another pytree, and its message names pytrees. Here a carry keeps the unit it started in, and all
branches of a conditional take the units of the first. A change of dimension raises `UnitError`. The
arguments and everything else are JAX's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jaxtyping import PyTree

from tanjax._typing import Arraylike, Function
from tanjax.quantities import is_quantity

from ._units import convert_like


def scan(
    f: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[PyTree, PyTree]:
    """`jax.lax.scan`; the carry keeps the units of `init`.

    **Raises:** `UnitError` naming the place in the carry and both units if a dimension changes.
    """

    def body(carry: PyTree, x: PyTree) -> PyTree:
        new, y = f(carry, x)
        return convert_like("scan: carry", carry, new), y

    return jax.lax.scan(body, init, xs, length, reverse, unroll)


def while_loop(cond_fun: Function, body_fun: Function, init_val: PyTree) -> PyTree:
    """`jax.lax.while_loop`; the carry keeps the units of `init_val`.

    **Raises:** `UnitError` if a dimension changes, or if the condition has one.
    """
    body = lambda carry: convert_like("while_loop: carry", carry, body_fun(carry))
    return jax.lax.while_loop(lambda c: _truth("while_loop", cond_fun(c)), body, init_val)


def fori_loop(
    lower: PyTree, upper: PyTree, body_fun: Function, init_val: PyTree, **options: PyTree
) -> PyTree:
    """`jax.lax.fori_loop`; the carry keeps the units of `init_val`.

    **Raises:** `UnitError` if a dimension changes, or if a bound has one.
    """
    body = lambda i, carry: convert_like("fori_loop: carry", carry, body_fun(i, carry))
    lower, upper = (_truth("fori_loop", bound, "bound") for bound in (lower, upper))
    return jax.lax.fori_loop(lower, upper, body, init_val, **options)


def cond(pred: PyTree, true_fun: Function, false_fun: Function, *operands: PyTree) -> PyTree:
    """`jax.lax.cond`; the result has the units of the first branch.

    **Raises:** `UnitError` if the branches differ in dimension.
    """
    branches = _alike("cond", [true_fun, false_fun], operands)
    return jax.lax.cond(_truth("cond", pred), *branches, *operands)


def switch(index: Arraylike, branches: Sequence[Function], *operands: PyTree) -> PyTree:
    """`jax.lax.switch`; the result has the units of the first branch.

    **Raises:** `UnitError` if the branches differ in dimension.
    """
    return jax.lax.switch(
        _truth("switch", index), _alike("switch", list(branches), operands), *operands
    )


def map(f: Function, xs: PyTree, *, batch_size: int | None = None) -> PyTree:
    """`jax.lax.map`, on quantities."""
    return jax.lax.map(f, xs, batch_size=batch_size)


def associative_scan(fn: Function, elems: PyTree, reverse: bool = False, axis: int = 0) -> PyTree:
    """`jax.lax.associative_scan`; partial results keep the units of `elems`.

    **Raises:** `UnitError` if combining two elements changes the dimension.
    """
    combine = lambda a, b: convert_like("associative_scan: element", a, fn(a, b))
    return jax.lax.associative_scan(combine, elems, reverse, axis)


def vmap(fun: Function, in_axes: PyTree = 0, out_axes: PyTree = 0, **options: PyTree) -> Function:
    """`jax.vmap`: units are not mapped, so it maps functions of quantities as it is."""
    return jax.vmap(fun, in_axes, out_axes, **options)


def checkpoint(fun: Function | None = None, **options: PyTree) -> Function:
    """`jax.checkpoint`, on quantities; also as a decorator with options."""
    if fun is None:
        return lambda f: jax.checkpoint(f, **options)
    return jax.checkpoint(fun, **options)


def _truth(where: str, x: PyTree, what: str = "predicate") -> PyTree:
    """Return a predicate, index or bound without a unit; a quantity must be a pure number."""
    return x.plain(f"{where}: {what}") if is_quantity(x) else x


def _alike(where: str, branches: list[Function], operands: PyTree) -> list[PyTree]:
    """Return branches that all return the units of the first."""
    first: list[PyTree] = []

    def wrap(i: int, branch: Function) -> Function:
        def call(*args: PyTree) -> PyTree:
            if i == 0:
                return branch(*args)
            if not first:  # the units of the first branch, without computing it
                first.append(jax.eval_shape(branches[0], *operands))
            return convert_like(f"{where}: result of branch {i}", first[0], branch(*args))

        return call

    return [wrap(i, branch) for i, branch in enumerate(branches)]
