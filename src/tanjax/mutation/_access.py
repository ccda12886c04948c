"""Reading and writing parts of an array, with transposes that work in place.

The transpose of `x[k]` is an array of zeros with one entry. JAX makes and adds one for every read,
so a loop of n reads costs n². Here a read is a transition, `x -> (x, x[k])`. Its transpose takes
the cotangent of the whole and increments one entry of it, so a loop of n reads costs n. A write of
a window, `(x, v) -> x with x[k] = v`, clears the entries that it passes to `v`.

    x, y = read(x, path)          # y = x[path]
    x = write(x, path, y)         # x[path] = y
    x = accumulate(x, path, y)    # x[path] += y

A path has the form of JAX's Ref primitives: steps of one index per axis, each a scalar, a slice or
an array. Scalars and slices are a *window* with the meaning of `lax.dynamic_slice`: a negative
start counts from the end, then it is clamped. Arrays have the meaning of `x[...]` and `x.at[...]`.

Sharp edges. Integers have no cotangents, so they are read and written plainly. So is every array if
XLA would copy the buffer at each step anyway (`_compat.BARRIER_KEEPS_ORDER`). A read that
`jax.vmap` maps over indices copies the array for each of them, because it returns the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._errors import MutationError, message
from tanjax._typing import Function
from tanjax.arrays import is_inexact

from ._jax_refs import Step, is_slice, is_window

Steps = Sequence[Step]


class Path(NamedTuple):
    """A place in an array: static numbers, and `None` for traced ones, in a tree."""

    tree: PyTreeDef
    static: tuple[int | None, ...]
    traced: tuple[PyTree, ...]

    def steps(self, traced: Sequence[PyTree]) -> list[PyTree]:
        """Return the steps, with these values for the traced indices."""
        values = iter(traced)
        return jax.tree.unflatten(
            self.tree, [next(values) if s is None else s for s in self.static]
        )

    @property
    def is_whole(self) -> bool:
        """True if the path leads to the whole array."""
        return not self.tree.num_leaves and all(map(_takes_all, self.steps(())))


def path_of(tree: PyTree, indices: Sequence[PyTree]) -> Path:
    """Return the path of a Ref primitive, from its parameter and its operands.

    **Raises:** `MutationError` for a view that is not a part of the array, because JAX 0.12 loses
    writes to a reshaped Ref. Also for a mask, because JAX gives the result of a read the shape of
    the mask.
    """
    if any(getattr(i, "dtype", None) == jnp.bool_ and np.ndim(i) for i in indices):
        raise MutationError(
            message(
                "a Ref is read or written by a mask.",
                "why: JAX takes the shape of the mask for that of the numbers in its places.",
                hint="say where it holds, `ref[np.flatnonzero(mask)]`; of a traced mask write all, "
                "`ref[...] = jnp.where(mask, new, ref[...])`. A `tj.refs.StructuredRef` takes "
                "masks.",
            )
        )
    for step in jax.tree.unflatten(tree, indices):
        if not hasattr(step, "indices"):
            raise MutationError(
                message(
                    "a Ref is read or written through a view that is no part of it.",
                    f"view: {type(step).__name__}",
                    hint="read the Ref (`ref[...]`), reshape the array, and write what you have.",
                )
            )
    static = tuple(int(i) if _is_number(i) else None for i in indices)
    return Path(tree, static, tuple(i for i in indices if not _is_number(i)))


def _is_number(index: PyTree) -> bool:
    return not isinstance(index, jax.Array) and np.ndim(index) == 0


def _takes_all(step: Step) -> bool:
    whole = lambda i, n: is_slice(i) and (i.start, i.size, i.stride) == (0, n, 1)
    return all(map(whole, step.indices, step.shape))


# -- plain -------------------------------------------------------------------------------------


def take(x: Array, steps: Steps) -> Array:
    """Return `x[path]`."""
    for step in steps:
        for part in _split(step):
            x = _take(x, part)
    return x


def put(x: Array, steps: Steps, new: PyTree) -> Array:
    """Return `x` with `x[path] = new`."""
    return _changed(x, [p for s in steps for p in _split(s)], new, _put)


def add(x: Array, steps: Steps, more: PyTree) -> Array:
    """Return `x` with `x[path] += more`, once for each time that the path names an entry."""
    parts = [p for s in steps for p in _split(s)]
    if all(is_window(p) for p in parts[:-1]):  # only the last can name an entry twice
        return _changed(x, parts, more, _add)
    inner = add(jnp.zeros_like(_take(x, parts[0])), parts[1:], more)
    return _add(x, parts[0], inner)


def _changed(x: Array, parts: Steps, new: PyTree, change: Function) -> Array:
    if not parts:
        return x + new if change is _add else jnp.broadcast_to(new, x.shape)
    if len(parts) > 1:
        return _put(x, parts[0], _changed(_take(x, parts[0]), parts[1:], new, change))
    return change(x, parts[0], new)


class _Step(NamedTuple):
    """One index for each axis, as in JAX's `NDIndexer`."""

    indices: tuple[PyTree, ...]
    shape: tuple[int, ...]


class _Slice(NamedTuple):
    start: PyTree
    size: int
    stride: int = 1


def _split(step: Step) -> list[Step]:
    """Split a step with arrays or strides and a traced slice: first the window of the slice."""
    traced = lambda i: is_slice(i) and not isinstance(i.start, int)
    if is_window(step) or not any(map(traced, step.indices)):
        return [step]
    outer, inner, shape = [], [], []
    for index, n in zip(step.indices, step.shape, strict=True):
        size = max((index.size - 1) * index.stride + 1, 0) if traced(index) else n
        outer.append(_Slice(index.start if traced(index) else 0, size))
        inner.append(_Slice(0, index.size, index.stride) if traced(index) else index)
        shape.append(size)
    return [_Step(tuple(outer), step.shape), _Step(tuple(inner), tuple(shape))]


def _take(x: Array, step: Step) -> Array:
    if not is_window(step):
        return x[_index(step)]
    starts, sizes, squeezed = _window(step)
    if all(isinstance(s, int) for s in starts):
        ends = [s + n for s, n in zip(starts, sizes, strict=True)]
        return lax.squeeze(lax.slice(x, starts, ends), squeezed)
    return lax.squeeze(lax.dynamic_slice(x, starts, sizes), squeezed)


def _put(x: Array, step: Step, new: PyTree) -> Array:
    new = _like(x, new)
    if not is_window(step):
        return x.at[_index(step)].set(new)
    starts, _, squeezed = _window(step)
    return lax.dynamic_update_slice(x, lax.expand_dims(new, squeezed), starts) if x.ndim else new


def _add(x: Array, step: Step, more: PyTree) -> Array:
    if not is_window(step):
        return x.at[_index(step)].add(_like(x, more))
    # Without it XLA fuses the previous step's write into this one, with a copy of the whole.
    x = lax.optimization_barrier(x)
    return _put(x, step, _take(x, step) + _like(x, more))


def _like(x: Array, new: PyTree) -> Array:
    return new if getattr(new, "dtype", None) == x.dtype else jnp.asarray(new, x.dtype)


def _index(step: Step) -> tuple[PyTree, ...]:
    """Return a step as NumPy's index."""

    def one(i: PyTree) -> PyTree:
        if not is_slice(i):
            return i
        return slice(i.start, i.start + max((i.size - 1) * i.stride + 1, 0), i.stride)

    return tuple(map(one, step.indices))


def _window(step: Step) -> tuple[list[PyTree], list[int], list[int]]:
    """Return starts of one dtype, sizes, and the axes that scalars remove."""
    starts, sizes, squeezed = [], [], []
    for axis, (index, n) in enumerate(zip(step.indices, step.shape, strict=True)):
        sliced = is_slice(index)
        start, size = (index.start, index.size) if sliced else (index, 1)
        if isinstance(start, int):
            start = min(max(start + n if start < 0 else start, 0), n - size)
        starts.append(start)
        sizes.append(size)
        if not sliced:
            squeezed.append(axis)
    moving = [s for s in starts if not isinstance(s, int)]
    if moving:
        wide = any(np.dtype(s.dtype).itemsize == 8 or s.dtype == np.uint32 for s in moving)
        kind = np.int64 if wide and jax.config.jax_enable_x64 else np.int32  # type: ignore[attr-defined]
        starts = [lax.convert_element_type(s, kind) for s in starts]
    return starts, sizes, squeezed


# -- transitions -------------------------------------------------------------------------------


def read(x: Array, path: Path) -> tuple[Array, Array]:
    """Return the array and `x[path]`, so that the transpose has a cotangent to increment."""
    if path.is_whole:
        return x, x
    if not is_linear(x):
        return x, take(x, path.steps(path.traced))

    def forward(*a: PyTree) -> list[Array]:
        *traced, whole = a
        return list(lax.optimization_barrier((whole, take(whole, path.steps(traced)))))

    def transpose(*a: PyTree) -> list[Array]:
        *traced, whole_bar, part_bar = a
        return [add(whole_bar, path.steps(traced), part_bar)]

    whole, taken = _linear("read", forward, transpose, path, [x])
    return whole, taken


def write(x: Array, path: Path, new: PyTree) -> Array:
    """Return `x` with `x[path] = new`."""
    if path.is_whole:
        return jnp.broadcast_to(_like(x, new), x.shape)
    if not (is_linear(x) and _is_plain_window(path)):
        return put(x, path.steps(path.traced), new)

    def forward(*a: PyTree) -> list[Array]:
        *traced, whole, part = a
        return [put(whole, path.steps(traced), part)]

    def transpose(*a: PyTree) -> list[Array]:
        *traced, whole_bar = a
        steps = path.steps(traced)
        # Read before clearing: the other order copies the whole in each step of a loop.
        whole_bar, part_bar = lax.optimization_barrier((whole_bar, take(whole_bar, steps)))
        return [put(whole_bar, steps, jnp.zeros_like(part_bar)), part_bar]

    return _linear("write", forward, transpose, path, [x, _like(x, new)])[0]


def accumulate(x: Array, path: Path, more: PyTree) -> Array:
    """Return `x` with `x[path] += more`, once for each time that the path names an entry."""
    if path.is_whole:
        return x + _like(x, more)
    if not (is_linear(x) and _is_plain_window(path)):
        return add(x, path.steps(path.traced), more)

    def forward(*a: PyTree) -> list[Array]:
        *traced, whole, part = a
        return [add(whole, path.steps(traced), part)]

    def transpose(*a: PyTree) -> list[Array]:
        *traced, whole_bar = a
        return list(lax.optimization_barrier((whole_bar, take(whole_bar, path.steps(traced)))))

    return _linear("accumulate", forward, transpose, path, [x, _like(x, more)])[0]


def is_linear(x: Array) -> bool:
    """True if reads and writes of parts of an array are separate transitions."""
    return is_inexact(x) and _compat.BARRIER_KEEPS_ORDER


def _is_plain_window(path: Path) -> bool:
    return all(map(is_window, path.steps(path.traced)))


def _linear(
    name: str,
    forward: Callable[..., list[Array]],
    transpose: Callable[..., list[Array]],
    path: Path,
    operands: list[Array],
) -> Sequence[Array]:
    operands = _compat.align(operands, path.traced)
    avals = jax.make_jaxpr(forward)(*path.traced, *operands).out_avals
    strong = [a.update(weak_type=False) for a in avals]
    linear = _compat.LinearMap(forward, transpose, name)
    return _compat.linear_call(linear, list(path.traced), operands, strong)
