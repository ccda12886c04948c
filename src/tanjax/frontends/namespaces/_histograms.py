"""Histograms of several variables: edges and ranges in the unit of each axis."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.quantities import convert, is_quantity, labelled, split_unit, stored_of, unit_of
from tanjax.units import Unit
from tanjax.units.signatures import Role, bind

from ._handler import unit_handler


@unit_handler("numpy.histogram2d")
def histogram2d(
    raw: Function,
    x: PyTree,
    y: PyTree,
    bins: PyTree = 10,
    range: PyTree = None,
    weights: PyTree = None,
    density: PyTree = None,
) -> PyTree:
    """Return edges in the units of `x` and `y`; counts plain, in the weights' unit, or per area."""
    (xs, u), (ys, v) = split_unit(x), split_unit(y)
    if np.ndim(bins) if type(bins) is not list else len(bins) != 2:
        bins = [bins, bins]  # the same edges for both
    counts, (ex, ey) = _histogram(
        "histogram2d",
        lambda b, r, w: _two_edges(raw(xs, ys, b, r, w, density)),
        (u, v),
        bins,
        range,
        weights,
        density,
    )
    return counts, ex, ey


def _two_edges(result: PyTree) -> PyTree:
    return result[0], result[1:]


@unit_handler("numpy.histogramdd")
def histogramdd(
    raw: Function,
    sample: PyTree,
    bins: PyTree = 10,
    range: PyTree = None,
    weights: PyTree = None,
    density: PyTree = None,
) -> PyTree:
    """As `histogram2d`; the columns of one sample share a unit."""
    if type(sample) in (list, tuple):  # one array, with its unit, per axis
        columns, found = zip(*map(split_unit, sample), strict=True)
        value = jnp.stack([jnp.ravel(c) for c in columns], -1)
    else:
        value, unit = split_unit(sample)
        found = (unit,) * np.shape(value)[1]
    return _histogram(
        "histogramdd",
        lambda b, r, w: raw(value, b, r, w, density),
        found,
        bins,
        range,
        weights,
        density,
    )


def _histogram(
    name: str,
    compute: Function,
    per_axis: tuple[Unit, ...],
    bins: PyTree,
    range: PyTree,
    weights: PyTree,
    density: PyTree,
) -> PyTree:
    """Strip edges and ranges axis by axis, compute, and label counts and edges."""
    if isinstance(bins, list | tuple):
        bins = [_in_unit(name, b, u) for b, u in zip(bins, per_axis, strict=True)]
    if range is not None:
        range = [
            r if r is None else tuple(_in_unit(name, end, u) for end in r)
            for r, u in zip(range, per_axis, strict=True)
        ]
    plain_weights = stored_of(weights)
    counts, edges = compute(bins, range, plain_weights)
    if density:
        volume = functools.reduce(Unit.__mul__, (u.delta for u in per_axis))
        counts = labelled(counts, volume.inverse)
    elif is_quantity(weights):
        counts = labelled(counts, weights.label)
    return counts, [labelled(e, u) for e, u in zip(edges, per_axis, strict=True)]


def _in_unit(name: str, edges: PyTree, unit: Unit) -> PyTree:
    """Return edges as numbers in a unit; a number of bins stays unchanged."""
    if not is_quantity(edges) and np.ndim(edges) == 0 and isinstance(edges, int):
        return edges
    operands = [(Role.parse("U"), unit, "sample"), (Role.parse("U"), unit_of(edges), "edges")]
    bind(name, operands)
    return convert(edges.stored, edges.label, unit) if is_quantity(edges) else edges
