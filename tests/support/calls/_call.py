"""Calls of JAX's functions on quantities, compared with plain JAX.

A call names a function, its arguments with units, and the unit of its result. No value is written
down. A hand-written conversion brings every quantity to SI, and plain JAX runs on these numbers.
The result of tanjax in SI must be the same numbers, with the stated dimension. Metres, kilometres
and seconds are mixed wherever two arguments may differ in prefix.
"""

import dataclasses
import functools
import importlib
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

import tanjax as tj

# The factor of a unit in SI, by hand, as the library's factors are under test.
FACTORS = {
    "m": 1.0,
    "km": 1000.0,
    "cm": 0.01,
    "s": 1.0,
    "ms": 0.001,
    "kg": 1.0,
    "1": 1.0,
    "rad": 1.0,
    "deg": math.pi / 180.0,
}
# Names that exist in only some of the supported versions of JAX.
SINGLE_VERSION = {
    "random.Key",  # 0.12
    "numpy.minmax",
    "numpy.top_k",
    "lax.log2",
    "lax.one_minus_square",
    "lax.polynomial",
    "lax.psum_scatter_start",
    "scipy.special.erfcinv",
    "lax.psend",  # 0.10
    "lax.precv",
}
RAW = {"numpy": "jax.numpy", "linalg": "jax.numpy.linalg", "fft": "jax.numpy.fft"}
FACE = {"numpy": "tanjax.numpy", "linalg": "tanjax.numpy.linalg", "fft": "tanjax.numpy.fft"}


@dataclasses.dataclass(frozen=True, eq=False)
class Q:
    """Numbers in a unit, `"km"` or `"km^2 s^-1"`, independent of the library."""

    value: object
    unit: str

    @property
    def si(self):
        by = factor(self.unit)
        return np.asarray(self.value) * (by if by != 1.0 else 1)

    @property
    def quantity(self):
        scalar = isinstance(self.value, int | float)  # as in `3.0 * km`
        return tj.Quantity(self.value if scalar else jnp.asarray(self.value), unit(self.unit))


def powers(text):
    """Return `"m^1/2 s^-1"` as pairs of names and exponents."""
    for part in text.split():
        name, _, exponent = part.partition("^")
        yield name, Fraction(exponent or 1)


def factor(text):
    return math.prod(FACTORS[name] ** float(exponent) for name, exponent in powers(text))


def unit(text):
    out = tj.units.one
    for name, exponent in powers(text):
        out = out * tj.unit(name) ** exponent
    return out


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """One call. `expected` is the unit of the result, `None` for a plain one, a tuple for several
    results. `value` replaces plain JAX on SI numbers where that has another meaning.
    """

    table: str
    name: str
    args: tuple
    kwargs: dict
    expected: object
    value: object = None
    numpy: bool = True  # NumPy understands these arguments, too

    def __str__(self):
        return f"{self.table}.{self.name}"

    def wrong(self, function):
        """Describe the fault in the answer of a function; return an empty text if it is right."""
        args, kwargs = self.quantities()
        try:
            result = function(*args, **kwargs)
            again = function(*args, **kwargs)  # uses caches of the first call
        except Exception as error:
            return f"error: {type(error).__name__}: {error}".splitlines()[0]
        plain = self.plain()
        return compare(result, plain, self.expected) or compare(again, plain, self.expected)

    def quantities(self):
        """Return the arguments as quantities."""
        return convert((self.args, self.kwargs), lambda q: q.quantity)

    def plain(self):
        """Return the answer of plain JAX in SI."""
        if self.value is not None:
            return self.value
        args, kwargs = convert((self.args, self.kwargs), lambda q: q.si)
        return raw(self)(*args, **kwargs)


def raw(call):
    """Return JAX's function, or `None` if this version lacks it."""
    module = importlib.import_module(RAW.get(call.table, f"jax.{call.table}"))
    return getattr(module, call.name, None)


def face(call):
    """Return the function of tanjax."""
    module = importlib.import_module(FACE.get(call.table, f"tanjax.{call.table}"))
    return getattr(module, call.name)


def convert(tree, leaf):
    """Replace the quantities of nested arguments."""
    return jax.tree.map(
        lambda x: leaf(x) if type(x) is Q else x, tree, is_leaf=lambda x: type(x) is Q or x is None
    )


def compare(result, plain, expected):
    """Compare value and unit of a result, recursively. **Returns:** the fault, or an empty text."""
    if isinstance(plain, tuple) and expected is None:
        expected = (None,) * len(plain)
    if isinstance(expected, tuple | list):
        if len(result) != len(plain) or len(expected) != len(plain):
            return f"{len(result)} results, not {len(plain)}"
        found = [compare(*three) for three in zip(result, plain, expected, strict=True)]
        return "; ".join(filter(None, found))
    if expected is None:
        if type(result) is tj.Quantity:
            return f"unit: {result.unit}, not plain"
    elif type(result) is not tj.Quantity:
        return f"strip: plain, not {expected}"
    elif result.unit.dimension is not unit(expected).dimension:
        return f"unit: {result.unit}, not {expected}"
    else:
        result = result.to_value(unit(expected))
    if plain is None or isinstance(plain, str | bool | int | np.dtype):
        return "" if result == plain else f"value: {result}, not {plain}"
    result, plain = np.asarray(result), np.asarray(plain)
    if result.shape != plain.shape:
        return f"value: shape {result.shape}, not {plain.shape}"
    if not np.allclose(result, plain, rtol=1e-9, atol=1e-9 * scale(plain), equal_nan=True):
        return f"value: {result}, not {plain}"
    return ""


def scale(plain):
    """Return the size of an answer: a zero in one unit may be rounding in another."""
    finite = np.abs(plain[np.isfinite(plain)]) if plain.dtype.kind in "fc" else np.zeros(0)
    return float(finite.max()) if finite.size else 0.0


def calls_of(table, **always):
    """Return a function for many calls of one namespace: `many("sin cos", x, unit="1")`."""

    def many(names, *args, unit, value=None, numpy=True, **kwargs):
        return [Call(table, name, args, kwargs, unit, value, numpy) for name in names.split()]

    return functools.partial(many, **always)


def also(table, names, calls):
    """Return the same calls for functions of another namespace with the same names."""
    return [dataclasses.replace(c, table=table) for c in calls if c.name in names.split()]
