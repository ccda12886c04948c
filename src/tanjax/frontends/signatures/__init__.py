"""Tables of unit signatures: the effects of the functions of JAX's namespaces on units.

Data, one module per namespace; nothing here imports JAX. An entry is one of

- a unit signature, `"y: u, x: v, dx: v -> u*v"`;
- `"special"`: the unit depends on values, shapes or flags, or an argument is a function;
- `"plain"`: takes no quantities, because it takes no numbers that could have a unit;
- `"refuse: reason"`: takes numbers, but a unit on them would have no meaning.

Parameters are named as in JAX. An upper-case letter says that the function also applies to points
of an affine scale: adding a constant to all of them adds it to all results, or leaves a plain
result unchanged.
"""

from . import (
    _numpy_elementwise,
    _numpy_reductions,
    _numpy_shapes,
    fft,
    lax,
    linalg,
    random,
    scipy,
)

TABLES: dict[str, dict[str, str]] = {
    "numpy": _numpy_elementwise.TABLE | _numpy_reductions.TABLE | _numpy_shapes.TABLE,
    "linalg": linalg.TABLE,
    "fft": fft.TABLE,
    "lax": lax.TABLE,
    "lax.linalg": lax.LINALG,
    "random": random.TABLE,
    "scipy": {},
    **{f"scipy.{name}": table for name, table in scipy.TABLES.items()},
}
