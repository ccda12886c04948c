"""`A.at[index]`: the updates of `jax.Array.at`, for structured arrays.

An update keeps the type if each updated entry is stored separately. Examples are the diagonal of a
`Diagonal` or `Symmetric` matrix, an entry of a band, a block, a pattern or a triangle. J⁺ shows
which entries a type stores: it maps a matrix of numbered entries to a tangent whose fields hold
these numbers. Elsewhere the update densifies the array and warns.

    tj.Diagonal(jnp.ones(3)).at[1, 1].set(5.0)  # Diagonal(diag=[1., 5., 1.])

Sharp edge: a traced index has no known places, so the array is densified.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._typing import DType, Function, Natural
from tanjax.arrays import (
    AbstractArray,
    Hermitian,
    Sparse,
    Symmetric,
    Triangular,
    as_array,
    densified,
    is_inexact,
    pushforward_of_restructure,
    without_promise,
)

_UPDATES: dict[str, Function] = {
    "set": lambda old, new: new,
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": jnp.multiply,
    "mul": jnp.multiply,
    "divide": jnp.divide,
    "power": jnp.power,
    "min": jnp.minimum,
    "max": jnp.maximum,
}


STORE_ALL = (Symmetric, Hermitian, Triangular)
_REAL = ("set", "add", "subtract", "multiply", "mul", "divide")  # of real numbers


Index: TypeAlias = PyTree  # the expression in the brackets of `x[...]`


class At:
    """The attribute `A.at`, which needs an index."""

    __slots__ = ("array",)

    def __init__(self, array: AbstractArray) -> None:
        self.array = array

    def __getitem__(self, index: Index) -> Updates:
        return Updates(self.array, index)


class Updates:
    """The result of `A.at[index]`, with the methods of `jax.Array.at[index]`."""

    __slots__ = ("array", "index")

    def __init__(self, array: AbstractArray, index: Index) -> None:
        self.array, self.index = array, index

    def __getattr__(self, name: str) -> Function:
        if name not in _UPDATES:
            raise AttributeError(f"`at[...]` has no `{name}`.")
        return lambda values, **options: self._updated(name, values, options)

    def get(self, **options: PyTree) -> Natural:
        """Return the entries at the index."""
        return self._dense().get(**options) if options else self.array[self.index]

    def apply(self, function: Function, **options: PyTree) -> Natural:
        """Return a copy with a function applied to entries."""
        places = None if options else _places(self.array, self.index, 1 + 1j)
        if places is None:
            return self._dense().apply(function, **options)
        return _on_places(self.array, places, lambda old, _: function(old))

    def _updated(self, name: str, values: PyTree, options: dict[str, PyTree]) -> Natural:
        x, update = self.array, _UPDATES[name]
        if isinstance(values, AbstractArray):
            if name == "set" and not options and _is_one_of(values, x, self.index):
                return jax.tree.map(lambda a, b: a.at[self.index].set(b), x, values)
            values = densified(values, "at", "update the fields instead")
        values = as_array(values)
        # The diagonal of a Hermitian matrix is real, and stays real under real numbers.
        unit = 1 if values.dtype.kind != "c" and name in _REAL else 1 + 1j
        places = None if options or not _can_hold(x, values) else _places(x, self.index, unit)
        if places is None:
            return getattr(self._dense(), name)(values, **options)
        shape = _selected(x, self.index)[0].shape
        flat = jnp.broadcast_to(values, shape).reshape(-1).astype(x.dtype)
        new = lambda old, number: update(old, flat[number].astype(old.dtype))
        return _on_places(x, places, new)

    def _dense(self) -> PyTree:
        return densified(self.array, "at", "update the fields instead").at[self.index]


def entries(x: AbstractArray, index: Index) -> Natural | None:
    """Return single entries of one matrix at known integers, if its type can compute them."""
    is_pair = type(index) is tuple and len(index) == len(x.shape) == 2
    can = "entries_at" in vars(type(x)) or isinstance(x, STORE_ALL)
    if not (is_pair and can and all(map(_is_known, index))):
        return None
    try:
        rows, columns = np.broadcast_arrays(*map(np.asarray, index))
    except ValueError:  # JAX raises later
        return None
    m, n = x.shape
    if not ((-m <= rows) & (rows < m) & (-n <= columns) & (columns < n)).all():
        return None
    found = x.canonical().entries_at(rows.reshape(-1) % m, columns.reshape(-1) % n)
    return found.reshape(rows.shape)


def _is_known(index: Index) -> bool:
    """True if an index is a known integer, or an array of known integers."""
    if isinstance(index, jax.core.Tracer) or type(index) is bool:
        return False
    return isinstance(index, int) or getattr(getattr(index, "dtype", None), "kind", "") in (
        "i",
        "u",
    )


def _is_one_of(value: AbstractArray, batch: AbstractArray, index: Index) -> bool:
    """True if a structured value has the type and shapes of the batch at the index."""
    try:
        part = jax.eval_shape(lambda x: x[index], batch)
    except Exception:
        return False
    same = jax.tree.structure(part) == jax.tree.structure(value)
    pairs = zip(jax.tree.leaves(part), jax.tree.leaves(value), strict=True) if same else ()
    return same and all(a.shape == b.shape for a, b in pairs)


def _can_hold(x: AbstractArray, values: PyTree) -> bool:
    return bool(np.can_cast(values.dtype.kind, x.dtype.kind, "same_kind"))


def _selected(x: AbstractArray, index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the columns of the entries at an index."""
    m, n = x.shape
    rows, columns = np.arange(m)[:, None], np.arange(n)
    return np.broadcast_to(rows, (m, n))[index], np.broadcast_to(columns, (m, n))[index]


def _places(x: AbstractArray, index: Index, unit: complex) -> list[np.ndarray] | None:
    """Return, per field, which selected entry it stores, counted from 1, and 0 elsewhere.

    `None` if the fields do not store every selected multiple of `unit` separately.
    """
    leaves, tree = jax.tree.flatten(x)
    are_numbers = x.fields_are_entries or all(map(is_inexact, leaves))
    if len(x.shape) != 2 or not x.is_linear or not are_numbers:
        return None
    parts = index if type(index) is tuple else (index,)
    if any(isinstance(p, jax.core.Tracer) for p in parts):
        return None
    try:
        rows, columns = (p.reshape(-1) for p in _selected(x, index))
    except (IndexError, TypeError):  # out of bounds, where JAX updates nothing
        return None
    if not 0 < rows.size <= sum(leaf.size for leaf in leaves):
        return None
    pairs = np.stack([rows, columns], axis=-1)
    numbers = np.arange(1.0, 1.0 + len(pairs)) * (unit if x.dtype.kind == "c" else 1)
    with jax.ensure_compile_time_eval():
        like = tree.unflatten([jnp.zeros(v.shape, _inexact(v.dtype)) for v in leaves])
        entries = Sparse(jnp.asarray(numbers, _inexact(x.dtype)), pairs, x.shape)
        tangent = pushforward_of_restructure(like)(entries)
        found = [np.asarray(leaf) for leaf in jax.tree.leaves(tangent)]
        back = np.asarray(tangent.entries_at(rows, columns))
    stored = np.concatenate([f[f != 0].reshape(-1) for f in found])
    if not (np.array_equal(back, numbers) and np.isin(stored, numbers).all()):
        return None
    return [f.real.astype(np.int64) for f in found]


def _inexact(dtype: DType) -> DType:
    return dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.dtype(jnp.float32)


def _on_places(x: AbstractArray, places: list[np.ndarray], new: Function) -> AbstractArray:
    """Return the array with `new(old, number)` where the fields have a number."""
    leaves, tree = jax.tree.flatten(without_promise(x.canonical()))
    changed = [
        jnp.where(at > 0, new(leaf, np.maximum(at - 1, 0)), leaf) if at.any() else leaf
        for leaf, at in zip(leaves, places, strict=True)
    ]
    return tree.unflatten(changed)
