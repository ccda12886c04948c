"""Trees of arrays as real vectors, and back.

Derivatives of functions of structured arrays are compared in *stored coordinates*: the real and
imaginary parts of every floating or complex leaf, one after the other. A tangent has the
coordinates of a primal. A cotangent has the conjugate ones, so that JAX's pairing `Re Σ ct t` is
the dot product of two vectors. Integers, callables and static data have no coordinates.

Concrete numbers go through NumPy. An operation of JAX on a new shape compiles a program, also
`jnp.asarray` of a NumPy array, and the check of an operation had thirty such shapes.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import arrays
from tanjax.arrays import AbstractArray

FLOAT0 = jax.dtypes.float0


def moves(leaf: PyTree) -> bool:
    """True if a leaf has a tangent space."""
    try:
        return bool(arrays.is_inexact(leaf))
    except TypeError:  # a callable or another static value
        return False


def in_hand(*leaves: PyTree) -> bool:
    """True if these are concrete numbers, and not tracers."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


@dataclasses.dataclass(frozen=True)
class Block:
    """The coordinates of one leaf."""

    name: str
    where: slice
    shape: tuple[int, ...]
    is_complex: bool


class Coordinates:
    """The real coordinates of a tree."""

    def __init__(self, tree: PyTree) -> None:
        paths, self.treedef = jax.tree_util.tree_flatten_with_path(tree)
        self.leaves = [leaf for _, leaf in paths]
        self.blocks: list[Block | None] = []
        start = 0
        for path, leaf in paths:
            if not moves(leaf):
                self.blocks.append(None)
                continue
            is_complex = jnp.issubdtype(jnp.result_type(leaf), jnp.complexfloating)
            stop = start + int(np.prod(np.shape(leaf))) * (2 if is_complex else 1)
            name = jax.tree_util.keystr(path)
            self.blocks.append(Block(name, slice(start, stop), np.shape(leaf), bool(is_complex)))
            start = stop
        self.size = start

    def vector(self, tree: PyTree) -> PyTree:
        """Return the coordinates of a primal or a tangent."""
        return self._vector(self.treedef.flatten_up_to(tree), conjugate=False)

    def dual(self, tree: PyTree) -> PyTree:
        """Return the coordinates of a cotangent: `dual(c) @ vector(t)` is JAX's pairing."""
        return self._vector(self.treedef.flatten_up_to(tree), conjugate=True)

    def _vector(self, leaves: list[PyTree], *, conjugate: bool) -> PyTree:
        parts: list[PyTree] = []
        xp: PyTree = np if in_hand(*leaves) else jnp
        for leaf, block in zip(leaves, self.blocks, strict=True):
            if block is None:
                continue
            leaf = xp.asarray(leaf)
            if leaf.shape != block.shape:
                raise ValueError(f"{block.name}: shape {leaf.shape} is not {block.shape}")
            parts.append(xp.real(leaf).ravel())
            if block.is_complex:
                imaginary = xp.imag(leaf).ravel()
                parts.append(-imaginary if conjugate else imaginary)
        return xp.concatenate(parts) if parts else np.zeros(0)

    def tree(self, vector: PyTree) -> PyTree:
        """Return the primal with these coordinates; leaves without coordinates are kept."""
        return self.treedef.unflatten(self._leaves(vector, self.leaves, conjugate=False))

    def tangent(self, vector: PyTree) -> PyTree:
        """Return the tangent with these coordinates; leaves without coordinates are `float0`."""
        return self.treedef.unflatten(self._leaves(vector, self._zeros(), conjugate=False))

    def cotangent(self, vector: PyTree) -> PyTree:
        """Return the cotangent with these dual coordinates."""
        return self.treedef.unflatten(self._leaves(vector, self._zeros(), conjugate=True))

    def _zeros(self) -> list[PyTree]:
        return [
            None if callable(leaf) else np.zeros(np.shape(leaf), FLOAT0) for leaf in self.leaves
        ]

    def _leaves(self, vector: PyTree, others: list[PyTree], *, conjugate: bool) -> list[PyTree]:
        new = list(others)
        known = in_hand(vector)
        vector = np.asarray(vector) if known else vector
        for i, block in enumerate(self.blocks):
            if block is None:
                continue
            values = vector[block.where]
            if block.is_complex:
                half = values.shape[0] // 2
                imaginary = -values[half:] if conjugate else values[half:]
                make = _complex if known else jax.lax.complex
                values = make(values[:half], imaginary)
            values = values.reshape(block.shape).astype(jnp.result_type(self.leaves[i]))
            new[i] = jax.device_put(values) if known else values
        return new


def _complex(real: PyTree, imaginary: PyTree) -> PyTree:
    """Combine without the product by 1j, which makes nan of infinities."""
    values = np.empty(np.shape(real), np.result_type(real, np.complex64))
    values.real, values.imag = real, imaginary
    return values


def complex_of(real: PyTree, imaginary: PyTree) -> PyTree:
    """Return the complex array of two concrete arrays."""
    return jax.device_put(_complex(np.asarray(real), np.asarray(imaginary)))


def canonical(tree: PyTree) -> PyTree:
    """Return a tree with the storage invariant of every structured array enforced again."""
    if jax.tree_util.all_leaves([tree]):
        return tree
    children, treedef = jax.tree.flatten(tree, is_leaf=lambda v: v is not tree)
    tree = jax.tree.unflatten(treedef, map(canonical, children))
    return tree.canonical() if isinstance(tree, AbstractArray) else tree


def dense(tree: PyTree) -> PyTree:
    """Return a tree with its structured arrays densified."""
    form = lambda x: arrays.destructure(x) if arrays.is_structured(x) else x
    return jax.tree.map(form, tree, is_leaf=arrays.is_structured)


def random(size: int, seed: int) -> PyTree:
    """Fixed numbers without symmetry, bounded away from zero and from each other's multiples.

    **Returns:** a NumPy array; the caller puts it on the device.
    """
    rng = np.random.default_rng([seed, size])
    return rng.uniform(0.3, 1.3, size) * rng.choice([-1.0, 1.0], size)


def single_precision(tree: PyTree) -> PyTree:
    """Return a tree in float32 and complex64, static dtypes included."""

    def narrow(dtype: DTypeLike) -> PyTree:
        return jnp.complex64 if jnp.issubdtype(dtype, jnp.complexfloating) else jnp.float32

    if jax.tree_util.all_leaves([tree]):
        if not moves(tree):
            return tree
        small = narrow(jnp.result_type(tree))
        return jax.device_put(np.asarray(tree, small)) if in_hand(tree) else tree.astype(small)
    children, treedef = jax.tree.flatten(tree, is_leaf=lambda v: v is not tree)
    tree = jax.tree.unflatten(treedef, map(single_precision, children))
    if isinstance(tree, AbstractArray):
        static = {f.name: getattr(tree, f.name) for f in dataclasses.fields(tree)}  # type: ignore[arg-type]
        kinds = {k: v for k, v in static.items() if isinstance(v, np.dtype)}
        tree = tree.replace(
            **{k: np.dtype(narrow(v)) for k, v in kinds.items() if jnp.issubdtype(v, jnp.inexact)}
        )
    return tree


def wide_leaves(tree: PyTree) -> list[str]:
    """Return the leaves of a tree that are not in single precision."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    wide = (jnp.float64, jnp.complex128)
    return [
        f"{jax.tree_util.keystr(path) or 'value'}: {leaf.dtype}"
        for path, leaf in paths
        if getattr(leaf, "dtype", None) in wide
    ]


def require_double(where: str, tree: PyTree) -> None:
    """Raise `ValueError` unless every leaf with a tangent space is in double precision."""
    dtypes = {jnp.result_type(leaf) for leaf in jax.tree.leaves(tree) if moves(leaf)}
    narrow = sorted(str(d) for d in dtypes if jnp.finfo(d).nmant < 52)
    if narrow:
        raise ValueError(
            f"{where}: finite differences need float64, got {', '.join(narrow)}.\n"
            'Hint: `jax.config.update("jax_enable_x64", True)` before the arrays are made.'
        )
