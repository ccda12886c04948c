"""Functions whose unit signature depends on flags, and defaults that are numbers with a unit.

`svd(a)` gives `(1, u, 1)`, `svd(a, compute_uv=False)` gives `u`. A *choice* has the parameters of
JAX's function, as far as they matter, and returns the signature for a call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tanjax.arrays import Unitful
from tanjax.registry import Front

from ._handler import SPECIALS
from .signatures import TABLES

Choice = Callable[..., str]


@functools.cache
def front(raw: Callable[..., Any], signature: str) -> Front:
    """A front, made once; it looks at numbers by itself."""
    raw = getattr(raw, "ungraphed", raw)
    return Front(raw.__name__, raw, signature)


def chosen(*names: str) -> Callable[[Choice], Choice]:
    """Register a function that chooses the signature of a call."""

    def register(choose: Choice) -> Choice:
        def call(raw: Any, *args: Any, **kwargs: Any) -> Any:
            return front(raw, choose(*args, **kwargs))(*args, **kwargs)

        for name in names:
            SPECIALS[name] = call
        return choose

    return register


def _with_defaults(signature: str, raw: Any, *args: Any, **kwargs: Any) -> Any:
    """A call with the defaults written out, so that their units are checked like any other's."""
    bound = inspect.signature(raw).bind(*args, **kwargs)
    bound.apply_defaults()
    return front(raw, signature)(*bound.args, **bound.kwargs)


for _table, _entries in TABLES.items():
    for _name, _entry in _entries.items():
        if "!" in _entry:
            _call = functools.partial(_with_defaults, _entry.replace("!", ""))
            SPECIALS[f"{_table}.{_name}"] = _call


# -- jax.numpy -----------------------------------------------------------------------------------


@chosen("numpy.average")
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, **_: Any
) -> str:
    return f"a: U, weights: v -> {'(U, v)' if returned else 'U'}"


@chosen("numpy.unwrap")
def _unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = None) -> str:
    if period is None:
        return "p: 1, discont: 1 -> rad"
    return "p: u, discont: u, period: u -> u"


@chosen("numpy.compress", "numpy.extract")
def _compress(*args: Any, size: Any = None, **_: Any) -> str:
    role = "U" if size is None else "u"  # a given size fills up with zeros
    return f"a: {role}, arr: {role}, fill_value: {role} -> {role}"


@chosen("numpy.select")
def _select(condlist: Any, choicelist: Any, default: Any = None) -> str:
    role = "u" if default is None else "U"  # where nothing is chosen there is zero
    return f"choicelist: [{role}], default: {role} -> {role}"


@chosen("numpy.unique")
def _unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *_: Any,
    **__: Any,
) -> str:
    more = ", -" * (bool(return_index) + bool(return_inverse) + bool(return_counts))
    return f"ar: U, fill_value: U -> {f'(U{more})' if more else 'U'}"


@chosen("numpy.intersect1d")
def _intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, **_: Any
) -> str:
    return f"ar1: U, ar2: U, fill_value: U -> {'(U, -, -)' if return_indices else 'U'}"


@chosen("numpy.histogram")
def _histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: Any = None, **_: Any
) -> str:
    counts = "1/u" if density else "v"
    return f"a: U, {_edges(bins)}range: U, weights: v -> ({counts}, u)"


@chosen("numpy.histogram_bin_edges")
def _histogram_bin_edges(a: Any, bins: Any = 10, *_: Any, **__: Any) -> str:
    return f"a: U, {_edges(bins)}range: U, weights: v -> U"


def _edges(bins: Any) -> str:
    """The role of `bins`: edges have a unit, a number of bins has none."""
    return "bins: U, " if type(bins) is Unitful or np.ndim(bins) else ""


# -- linear algebra --------------------------------------------------------------------------------


@chosen("linalg.norm")
def _norm(x: Any, ord: Any = None, *_: Any, **__: Any) -> str:
    return _vector_norm(x, ord=ord)


@chosen("linalg.vector_norm")
def _vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> str:
    counts = isinstance(ord, int | float) and ord == 0  # the number of entries that are not zero
    return f"x: u -> {'-' if counts else 'u'}"


@chosen("linalg.qr")
def _qr(a: Any, mode: str = "reduced") -> str:
    if mode == "raw":
        return "a: 1 -> (1, 1)"
    return f"a: u -> {'u' if mode == 'r' else '(1, u)'}"


@chosen("scipy.linalg.qr")
def _scipy_qr(
    a: Any,
    overwrite_a: Any = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> str:
    pivots = ", -" if pivoting else ""
    return f"a: u -> ({'' if mode == 'r' else '1, '}u{pivots})"


@chosen("linalg.svd", "scipy.linalg.svd")
def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, *_: Any, **__: Any) -> str:
    return f"a: u -> {'(1, u, 1)' if compute_uv else 'u'}"


@chosen("lax.linalg.svd")
def _lax_svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> str:
    return f"x: u -> {'(1, u, 1)' if compute_uv else '[u]'}"


@chosen("scipy.linalg.eigh")
def _scipy_eigh(
    a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, *_: Any, **__: Any
) -> str:
    if b is None:
        return f"a: u -> {'u' if eigvals_only else '(u, 1)'}"
    # vectors are normalised by `v^H b v = 1`
    return f"a: u, b: v -> {'u/v' if eigvals_only else '(u/v, v^-1/2)'}"


@chosen("scipy.linalg.hessenberg")
def _hessenberg(a: Any, *, calc_q: bool = False, **_: Any) -> str:
    return f"a: u -> {'(u, 1)' if calc_q else 'u'}"


@chosen("scipy.linalg.lu")
def _lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> str:
    return f"a: u -> {'(1, u)' if permute_l else '(-, 1, u)'}"


@chosen("scipy.linalg.expm_frechet")
def _expm_frechet(A: Any, E: Any, *, method: Any = None, compute_expm: bool = True) -> str:
    return f"A: 1, E: u -> {'(1, u)' if compute_expm else 'u'}"


@chosen("scipy.linalg.solve_triangular")
def _solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, **_: Any
) -> str:
    # a diagonal of ones is a diagonal of pure numbers
    return "a: 1, b: v -> v" if unit_diagonal else "a: u, b: v -> v/u"


@chosen("lax.linalg.triangular_solve")
def _triangular_solve(a: Any, b: Any, *, unit_diagonal: bool = False, **_: Any) -> str:
    return "a: 1, b: v -> v" if unit_diagonal else "a: u, b: v -> v/u"


# -- the rest of jax.scipy -------------------------------------------------------------------------


@chosen("scipy.special.logsumexp")
def _logsumexp(
    a: Any,
    axis: Any = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> str:
    return f"a: 1, b: 1 -> {'(1, -)' if return_sign else '1'}"


@chosen("scipy.signal.csd")
def _csd(x: Any, y: Any, fs: Any = 1.0, *rest: Any, scaling: str = "density", **_: Any) -> str:
    power = "u^2" if y is None else "u*v"
    return f"x: u, y: v, fs: w -> (w, {power}{_per_frequency(rest, scaling)})"


@chosen("scipy.signal.welch")
def _welch(x: Any, fs: Any = 1.0, *rest: Any, scaling: str = "density", **_: Any) -> str:
    return f"x: u, fs: w -> (w, u^2{_per_frequency(rest, scaling)})"


def _per_frequency(rest: tuple[Any, ...], scaling: str) -> str:
    """A density is per frequency, a spectrum is not; `scaling` is the seventh after `fs`."""
    return "/w" if (rest[6] if len(rest) > 6 else scaling) == "density" else ""
