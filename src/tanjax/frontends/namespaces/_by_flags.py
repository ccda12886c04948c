"""Unit signatures that depend on flags, and defaults that are numbers with a unit.

`svd(a)` has the units `(1, u, 1)`, `svd(a, compute_uv=False)` the unit `u`. A function that chooses
a signature takes those parameters of JAX's function that matter, with JAX's defaults.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import numpy as np
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.quantities import is_quantity

from ..signatures import TABLES
from ._handler import HANDLERS, ungraphed, unit_function

Choice = Callable[..., str]


@functools.cache
def _parameters(f: Function) -> tuple[str, ...]:
    return tuple(inspect.signature(f).parameters)


def signature_by_flags(*names: str) -> Callable[[Choice], Choice]:
    """Register a function that chooses the signature of a call from some of its arguments."""

    def register(choose: Choice) -> Choice:
        flags = _parameters(choose)

        def call(raw: Function, *args: PyTree, **kwargs: PyTree) -> PyTree:
            # 1 us; binding the arguments to the signature would cost 4 us
            given = dict(zip(_parameters(ungraphed(raw)), args)) | kwargs  # noqa: B905
            chosen = choose(**{flag: given[flag] for flag in flags if flag in given})
            return unit_function(raw, chosen)(*args, **kwargs)

        call.checks_range = True  # type: ignore[attr-defined]
        for name in names:
            HANDLERS[name] = call
        return choose

    return register


def _with_defaults(signature: str, raw: Function, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Call with the defaults written out, so that their units are checked like any other's."""
    bound = inspect.signature(raw).bind(*args, **kwargs)
    bound.apply_defaults()
    return unit_function(raw, signature)(*bound.args, **bound.kwargs)


for _table, _entries in TABLES.items():
    for _name, _entry in _entries.items():
        if "!" in _entry:
            _call = functools.partial(_with_defaults, _entry.replace("!", ""))
            _call.checks_range = True  # type: ignore[attr-defined]
            HANDLERS[f"{_table}.{_name}"] = _call


# -- jax.numpy -----------------------------------------------------------------------------------


@signature_by_flags("numpy.average")
def _average(returned: bool = False) -> str:
    return f"a: U, weights: v -> {'(U, v)' if returned else 'U'}"


@signature_by_flags("numpy.unwrap")
def _unwrap(period: PyTree = None) -> str:
    if period is None:
        return "p: 1, discont: 1 -> rad"
    return "p: u, discont: u, period: u -> u"


@signature_by_flags("numpy.compress", "numpy.extract")
def _compress(size: int | None = None) -> str:
    role = "U" if size is None else "u"  # a given size pads with zeros
    return f"a: {role}, arr: {role}, fill_value: {role} -> {role}"


@signature_by_flags("numpy.select")
def _select(default: PyTree = None) -> str:
    role = "u" if default is None else "U"  # entries without a choice are zero
    return f"choicelist: [{role}], default: {role} -> {role}"


@signature_by_flags("numpy.unique")
def _unique(
    return_index: bool = False, return_inverse: bool = False, return_counts: bool = False
) -> str:
    more = ", -" * (bool(return_index) + bool(return_inverse) + bool(return_counts))
    return f"ar: U, fill_value: U -> {f'(U{more})' if more else 'U'} kept"


@signature_by_flags("numpy.intersect1d")
def _intersect1d(return_indices: bool = False) -> str:
    return f"ar1: U, ar2: U, fill_value: U -> {'(U, -, -)' if return_indices else 'U'}"


@signature_by_flags("numpy.histogram")
def _histogram(bins: PyTree = 10, density: PyTree = None) -> str:
    counts = "1/u" if density else "v"
    return f"a: U, {_edges(bins)}range: U, weights: v -> ({counts}, u)"


@signature_by_flags("numpy.histogram_bin_edges")
def _histogram_bin_edges(bins: PyTree = 10) -> str:
    return f"a: U, {_edges(bins)}range: U, weights: v -> U"


def _edges(bins: PyTree) -> str:
    """Return the role of `bins`: edges have a unit, a number of bins has none."""
    return "bins: U, " if is_quantity(bins) or np.ndim(bins) else ""


# -- linear algebra --------------------------------------------------------------------------------


@signature_by_flags("linalg.norm", "linalg.vector_norm")
def _norm(ord: PyTree = None) -> str:
    counts = isinstance(ord, int | float) and ord == 0  # the number of entries that are not zero
    return f"x: u -> {'-' if counts else 'u'}"


@signature_by_flags("linalg.qr")
def _qr(mode: str = "reduced") -> str:
    if mode == "raw":
        return "a: 1 -> (1, 1)"
    return f"a: u -> {'u' if mode == 'r' else '(1, u)'}"


@signature_by_flags("scipy.linalg.qr")
def _scipy_qr(mode: str = "full", pivoting: bool = False) -> str:
    pivots = ", -" if pivoting else ""
    return f"a: u -> ({'' if mode == 'r' else '1, '}u{pivots})"


@signature_by_flags("linalg.svd", "scipy.linalg.svd")
def _svd(compute_uv: bool = True) -> str:
    return f"a: u -> {'(1, u, 1)' if compute_uv else 'u'}"


@signature_by_flags("lax.linalg.svd")
def _lax_svd(compute_uv: bool = True) -> str:
    return f"x: u -> {'(1, u, 1)' if compute_uv else '[u]'}"


@signature_by_flags("scipy.linalg.eigh")
def _scipy_eigh(b: PyTree = None, eigvals_only: bool = False) -> str:
    if b is None:
        return f"a: u -> {'u' if eigvals_only else '(u, 1)'}"
    # vectors are normalised by `v^H b v = 1`
    return f"a: u, b: v -> {'u/v' if eigvals_only else '(u/v, v^-1/2)'}"


@signature_by_flags("scipy.linalg.hessenberg")
def _hessenberg(calc_q: bool = False) -> str:
    return f"a: u -> {'(u, 1)' if calc_q else 'u'}"


@signature_by_flags("scipy.linalg.lu")
def _lu(permute_l: bool = False) -> str:
    return f"a: u -> {'(1, u)' if permute_l else '(-, 1, u)'}"


@signature_by_flags("scipy.linalg.expm_frechet")
def _expm_frechet(compute_expm: bool = True) -> str:
    return f"A: 1, E: u -> {'(1, u)' if compute_expm else 'u'}"


@signature_by_flags("scipy.linalg.solve_triangular", "lax.linalg.triangular_solve")
def _solve_triangular(unit_diagonal: bool = False) -> str:
    # a diagonal of ones is a diagonal of pure numbers
    return "a: 1, b: v -> v" if unit_diagonal else "a: u, b: v -> v/u"


# -- the rest of jax.scipy -------------------------------------------------------------------------


@signature_by_flags("scipy.special.logsumexp")
def _logsumexp(return_sign: bool = False) -> str:
    return f"a: 1, b: 1 -> {'(1, -)' if return_sign else '1'}"


@signature_by_flags("scipy.signal.csd")
def _csd(y: PyTree = None, scaling: str = "density") -> str:
    return _spectrum("x: u, y: v, fs: w", "u^2" if y is None else "u*v", scaling)


@signature_by_flags("scipy.signal.welch")
def _welch(scaling: str = "density") -> str:
    return _spectrum("x: u, fs: w", "u^2", scaling)


def _spectrum(operands: str, power: str, scaling: str) -> str:
    """Return the signature: a density is per frequency, a spectrum is not."""
    return f"{operands} -> (w, {power}{'/w' if scaling == 'density' else ''})"
