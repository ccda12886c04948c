"""Gradients, Jacobians and products with them, in natural (co)tangents."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._typing import Function
from tanjax.arrays import is_inexact, is_structured
from tanjax.quantities import is_quantity, stored_of, unitful

from ._chosen import (
    Argnums,
    check_differentiable,
    hold_fixed,
    is_number,
    moving_leaves,
    places,
)
from ._contents import in_fields, is_memory, with_aux, with_state
from ._eager import planned_if_lost
from ._into import into_buffers
from ._natural import (
    destructured_tree,
    natural_tree,
    structural_cotangent,
    structural_tangent,
)
from ._ref_functions import ref_functions
from ._units import Stripped, common_rate, flatten_like, is_plain_leaf, strip, times_unit

P = ParamSpec("P")


def value_and_grad(
    f: Callable[P, PyTree],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    into: PyTree = None,
) -> Callable[P, PyTree]:
    """Like `jax.value_and_grad`, with natural gradients.

    **Arguments:** `f`, a scalar function of pytrees that may hold structured arrays; `allow_int`:
    integers alone are no error, their gradient is `None`; `into`: buffers of `tj.refs.zero_refs`,
    with `None` in the place of a leaf, array or tree that is frozen.

    **Returns:** a function giving the value and the gradient. The gradient has an array for every
    dense array. It has the natural cotangent for every structured array: the same type for linear
    types, factored or dense otherwise. It has `None` for leaves that are integers, booleans or no
    arrays (the activation function of a Module). The gradient of a quantity is a quantity, in
    `[loss]/[x]`. With `into` the function gives the value alone: it *adds* the gradient to the
    buffers, and never plans it again. The gradient of a Ref is that by its contents before the
    call; afterwards the Ref holds the values that `f` wrote. With Refs `f` is traced.

    **Raises:** `TypeError` if an argument in `argnums` has nothing to differentiate; for buffers
    that do not fit `CotangentError`, `AliasError`, `MutationError`, `UnitError`.
    """

    def derivative(*args: P.args, **kwargs: P.kwargs) -> PyTree:
        if not allow_int:
            check_differentiable("grad", args, argnums)
        held, moving, restore = hold_fixed(f, args, argnums)
        stripped = Stripped(held, has_aux)
        run = jax.value_and_grad(
            stripped, argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=True
        )
        value, structural = run(*moving, **kwargs)
        structural = restore(structural)
        if isinstance(argnums, int):
            gradient = natural_tree(args[argnums], structural)
        else:
            pairs = zip(argnums, structural, strict=True)
            gradient = tuple(natural_tree(args[i], s) for i, s in pairs)
        unit = stripped.units.leaves[0]  # the loss is one scalar
        if unit is None:
            return value, gradient
        loss, aux = value if has_aux else (value, None)
        loss = unitful(loss, unit)
        return (loss, aux) if has_aux else loss, times_unit(gradient, unit.delta)

    @functools.wraps(f)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> PyTree:
        chosen = [args[i] for i in places("grad", args, argnums)]
        call = ref_functions().contents("grad", f, args, kwargs, chosen, into)
        if call is not None:
            run = value_and_grad(
                with_aux(call, has_aux), argnums, True, holomorphic, allow_int, into=into
            )
            result = run(*call.args, **call.kwargs)
            value, (aux, after) = result if into is not None else result[0]
            call.write(after)
            value = (value, aux) if has_aux else value
            return value if into is not None else (value, result[1])
        if into is not None:
            return into_buffers(f, argnums, has_aux, holomorphic, allow_int, into)(*args, **kwargs)
        result = derivative(*args, **kwargs)
        return planned_if_lost("value_and_grad", f, derivative, args, kwargs, result)

    return wrapped


def grad(
    f: Callable[P, PyTree],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    into: PyTree = None,
) -> Callable[P, PyTree]:
    """Like `jax.grad`, with natural gradients: `value_and_grad` without the value.

    **Returns:** a function giving the gradient, with `has_aux` a pair of gradient and aux value.
    With `into`, buffers as in `value_and_grad`, it adds the gradient to them and returns `None`, or
    the aux value.
    **Raises:** `TypeError` if an argument in `argnums` has nothing to differentiate. Warns
    `HiddenCotangentWarning` (not under `jit`) if `f` reads fields that the array does not
    determine.
    **Range:** `tj.jit(tj.grad(f))` is planned. Outside of `tj.jit` tanjax measures only arguments
    and results. It plans a gradient that is not finite or all zero, or that has few numbers near
    the ends of the range. It misses numbers that leave the range on the way and come back.
    **Cost:** that of `jax.grad`, and J⁺ᵀ of every structured argument.
    """
    both = value_and_grad(f, argnums, has_aux, holomorphic, allow_int, into=into)

    @functools.wraps(f)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> PyTree:
        if into is not None:
            value = both(*args, **kwargs)
            return value[1] if has_aux else None
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def vjp(f: Function, *primals: PyTree, has_aux: bool = False) -> PyTree:
    """Like `jax.vjp`, with natural cotangents on both sides.

    **Returns:** `(out, pullback)`, with `has_aux` also the aux value; `pullback(out_bar)` takes a
    natural cotangent of every array in `out` (dense or structured) and returns one per primal. The
    cotangent of a Ref is that of its contents before, as in `grad`. To differentiate its contents
    afterwards, return them from `f`.
    """
    call = ref_functions().contents("vjp", f, primals, {}, primals)
    if call is not None:
        out, pullback, (aux, after) = vjp(with_aux(call, has_aux), *call.args, has_aux=True)
        call.write(after)
        return (out, pullback, aux) if has_aux else (out, pullback)
    labelled, structural_pullback, *aux = vjp_in_fields(f, *primals, has_aux=has_aux)
    pullback = functools.partial(natural_pullback, primals, labelled, structural_pullback)

    def looked_at(out_bar: PyTree) -> PyTree:
        again = lambda primals, bar: vjp(f, *primals, has_aux=has_aux)[1](bar)
        result = pullback(out_bar)
        return planned_if_lost("vjp", f, again, (primals, out_bar), {}, result)

    value = lambda *primals: vjp(f, *primals, has_aux=has_aux)[0]
    return (planned_if_lost("vjp", f, value, primals, {}, labelled), looked_at, *aux)


def vjp_in_fields(f: Function, *primals: PyTree, has_aux: bool = False) -> PyTree:
    """`jax.vjp` for structured arrays and quantities; the result keeps its units.

    **Returns:** `(out, pullback)`, with `has_aux` also the aux value; the pullback is JAX's, a
    pytree of residuals that takes and gives structural cotangents.
    """
    stripped = Stripped(f, has_aux)
    run: Function = jax.vjp
    out, structural_pullback, *aux = run(stripped, *primals, has_aux=has_aux)
    return stripped.units.label(out), structural_pullback, *aux


def natural_pullback(
    primals: Sequence[PyTree], out: PyTree, structural_pullback: Function, out_bar: PyTree
) -> tuple[PyTree, ...]:
    """Return the natural cotangents of `primals`, from that of `out` and the pullback in fields."""
    outs, given, tree = flatten_like("vjp", out, out_bar)
    plain, objective = common_rate("vjp", outs, given, cotangent=True)
    bars = [structural_cotangent(stored_of(o), n) for o, n in zip(outs, plain, strict=True)]
    structural = structural_pullback(jax.tree.unflatten(tree, bars))
    natural = (natural_tree(p, c) for p, c in zip(primals, structural, strict=True))
    return tuple(times_unit(n, objective) for n in natural)


def jvp(
    f: Function, primals: Sequence[PyTree], tangents: Sequence[PyTree], has_aux: bool = False
) -> tuple[PyTree, ...]:
    """Like `jax.jvp`, with natural tangents in and out.

    **Arguments:** the tangent of a Ref is an array, the natural tangent of its contents. It may
    also be memory as of `tj.tangents.zero_tangent(ref)`, the tangents of its fields. `jvp`
    overwrites that memory with the tangent of the contents afterwards.
    **Returns:** value and tangent, with `has_aux` also the aux value.
    **Raises:** `CotangentError` if a tangent is not tangent to its array's type, or is an
    instance of a non-linear type (then it is unclear whether fields or arrays are meant).
    """
    call = ref_functions().contents("jvp", f, tuple(primals), {}, primals)
    if call is not None:
        (out, after), (moved, state_dot), *aux = jvp(
            with_state(call, has_aux), call.args, tangents, has_aux
        )
        call.write(after)
        call.write_tangents(tangents, state_dot)
        return out, moved, *aux
    moved, rate = _structural_tangents("jvp", primals, tangents)
    stripped = Stripped(f, has_aux)
    out, structural, *aux = jax.jvp(stripped, tuple(primals), moved, has_aux=has_aux)
    rates = stripped.units.rates(_push_tree(out, structural), rate)
    result = stripped.units.label(out), rates, *aux
    again = lambda primals, tangents: jvp(f, primals, tangents, has_aux)
    return planned_if_lost("jvp", f, again, (tuple(primals), tuple(tangents)), {}, result)


def _structural_tangents(where: str, primals: PyTree, tangents: PyTree) -> tuple[PyTree, PyTree]:
    """Return the natural tangents of all primals as structural tangents, and their common rate."""
    leaves, given, tree = flatten_like(where, tuple(primals), tuple(tangents))
    memory = [is_memory(n) for n in given]
    given = [n[...] if held else n for n, held in zip(given, memory, strict=True)]
    plain, rate = common_rate(where, leaves, given, cotangent=False)
    moved = []
    for x, n, held in zip(leaves, plain, memory, strict=True):
        t = (in_fields if held else structural_tangent)(where, stored_of(x), n)
        moved.append(unitful(t, x.label) if is_quantity(x) else t)
    return jax.tree.unflatten(tree, moved), rate


def linearize(f: Function, *primals: PyTree, has_aux: bool = False) -> PyTree:
    """Like `jax.linearize`, with natural tangents in and out.

    **Returns:** `(out, push)`, with `has_aux` also the aux value; `push(*tangents)` takes one
    natural tangent per primal, and does not evaluate `f` again. Tangents of Refs are as in `jvp`.
    **Raises:** `CotangentError`, as `jvp`.
    """
    call = ref_functions().contents("linearize", f, primals, {}, primals)
    if call is not None:
        run = with_state(call, has_aux)
        (out, after), push_all, *aux = linearize(run, *call.args, has_aux=has_aux)
        call.write(after)

        def push_memory(*tangents: PyTree) -> PyTree:
            moved, state_dot = push_all(*tangents)
            call.write_tangents(tangents, state_dot)
            return moved

        return out, push_memory, *aux
    labelled, structural_push, *aux = linearize_in_fields(f, *primals, has_aux=has_aux)

    def push(*tangents: PyTree) -> PyTree:
        result = natural_pushforward(primals, labelled, structural_push, *tangents)
        again = lambda primals, ts: linearize(f, *primals, has_aux=has_aux)[1](*ts)
        return planned_if_lost("linearize", f, again, (primals, tangents), {}, result)

    value = lambda *primals: linearize(f, *primals, has_aux=has_aux)[0]
    return planned_if_lost("linearize", f, value, primals, {}, labelled), push, *aux


def linearize_in_fields(f: Function, *primals: PyTree, has_aux: bool = False) -> PyTree:
    """`jax.linearize` for structured arrays and quantities: see `vjp_in_fields`."""
    stripped = Stripped(f, has_aux)
    run: Function = jax.linearize
    out, structural_push, *aux = run(stripped, *primals, has_aux=has_aux)
    return stripped.units.label(out), structural_push, *aux


def natural_pushforward(
    primals: Sequence[PyTree], out: PyTree, structural_push: Function, *tangents: PyTree
) -> PyTree:
    """Return the natural tangent of `out`, from those of `primals` and the push in fields."""
    moved, rate = _structural_tangents("linearize", primals, tangents)
    plain, units = strip(out)
    return units.rates(_push_tree(plain, structural_push(*moved)), rate)


def _push_tree(out: PyTree, structural: PyTree) -> PyTree:
    push = lambda x, t: arrays.pushforward_of_destructure(x)(t) if is_structured(x) else t
    return jax.tree.map(push, out, structural, is_leaf=is_structured)


def jacrev(
    f: Callable[P, PyTree], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[P, PyTree]:
    """The Jacobian by reverse mode, with natural rows.

    **Returns:** a tree like the output whose leaves are trees like the argument. The block of a
    dense argument has shape `out.shape + in.shape`. The block of a structured argument is its
    natural cotangent, stacked along the axes of the output: `block[i]` is `grad(f_i)`.
    Structured outputs count with all entries of their dense array.
    """
    return _jacobian(jax.jacrev, f, argnums, has_aux, holomorphic)


def jacfwd(
    f: Callable[P, PyTree], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[P, PyTree]:
    """The Jacobian by forward mode; same result as `jacrev`, cheaper for few inputs.

    **Cost:** one forward pass per stored number; `jacrev`: one reverse pass per output entry.
    """
    return _jacobian(jax.jacfwd, f, argnums, has_aux, holomorphic)


jacobian = jacrev


def hessian(
    f: Callable[P, PyTree], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[P, PyTree]:
    """The Hessian: `jacobian(grad(f))` with natural blocks, `jacobian(jacobian(f))` for other `f`.

    **Returns:** for every array of the argument a row of blocks, with `has_aux` also the aux value.
    A dense block has shape `x.shape + y.shape`; structured blocks are stacked as in `jacrev`. For a
    non-linear type the natural gradient depends on the point through J⁺ᵀ, too, and `hessian`
    differentiates that dependence. A function that is not scalar has this tree in every place of
    its output, with the axes of that output first.
    """

    @functools.wraps(f)
    def scalar(*args: P.args, **kwargs: P.kwargs) -> PyTree:
        out = f(*args, **kwargs)
        value = out[0] if has_aux else out
        if not is_plain_leaf(stored_of(value)) or jnp.shape(stored_of(value)):
            raise _NotScalar
        return out

    of_scalar = jacfwd(grad(scalar, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)
    of_others = jacfwd(jacrev(f, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)

    @functools.wraps(f)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> PyTree:
        try:
            return of_scalar(*args, **kwargs)
        except _NotScalar:
            return of_others(*args, **kwargs)

    return wrapped


class _NotScalar(Exception):
    """Raised while tracing the function of a Hessian, if its result is not a scalar."""


def _jacobian(
    mode: Function, f: Function, argnums: Argnums, has_aux: bool, holomorphic: bool
) -> Function:
    def derivative(*args: PyTree, **kwargs: PyTree) -> PyTree:
        check_differentiable("jacobian", args, argnums)
        where = places("jacobian", args, argnums)
        chosen = [args[i] for i in where]
        leaves, join = moving_leaves(chosen)

        def joined(leaves: PyTree) -> PyTree:
            full = list(args)
            for i, x in zip(where, join(leaves), strict=True):
                full[i] = x
            out = f(*full, **kwargs)
            out, aux = out if has_aux else (out, None)
            return out, aux

        def stripped_out(leaves: PyTree) -> PyTree:
            plain, aux = stripped(leaves)
            dense = destructured_tree(plain)
            return dense, (dense, aux)

        stripped = Stripped(joined, has_aux=True)
        columns, (out, aux) = mode(stripped_out, has_aux=True, holomorphic=holomorphic)(leaves)
        rows = _natural_rows(out, columns, chosen, isinstance(argnums, int))
        label = lambda block, unit: block if unit is None else times_unit(block, unit.delta)
        rows = stripped.units.map(rows, label)
        return (rows, aux) if has_aux else rows

    @functools.wraps(f)
    def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        # The contents of every Ref, chosen or not: `jax.vmap` cannot write a Ref in each row.
        call = ref_functions().contents("jacobian", f, args, kwargs, (args, kwargs))
        if call is not None:
            run = _jacobian(mode, with_aux(call, has_aux), argnums, True, holomorphic)
            rows, (aux, after) = run(*call.args, **call.kwargs)
            call.write(after)
            return (rows, aux) if has_aux else rows
        result = derivative(*args, **kwargs)
        return planned_if_lost("jacobian", f, derivative, args, kwargs, result)

    return wrapped


def _natural_rows(out: PyTree, columns: PyTree, chosen: PyTree, single: bool) -> PyTree:
    """Return natural blocks from Jacobians in stored coordinates, for every array of the output."""
    outs, tree = jax.tree.flatten(out)
    blocks = []
    for o, stored in zip(outs, tree.flatten_up_to(columns), strict=True):
        rest = iter(stored)
        fill = lambda p, rest=rest, o=o: next(rest) if is_inexact(p) else _no_tangent(o, p)
        structural = jax.tree.map(fill, chosen)
        natural = tuple(
            natural_tree(x, s, batch=jnp.ndim(o)) for x, s in zip(chosen, structural, strict=True)
        )
        blocks.append(natural[0] if single else natural)
    return jax.tree.unflatten(tree, blocks)


def _no_tangent(o: PyTree, p: PyTree) -> PyTree:
    if not is_number(p):
        return p
    return np.zeros(jnp.shape(o) + jnp.shape(p), jax.dtypes.float0)
