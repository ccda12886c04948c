"""Exponents and magnitudes of a scale graph, written by hand."""

from tanjax.scale.graph._graph import Exponents, Use


def exponents_at(graph, of, **more):
    """Return exponents of some values and uses, from pairs; others are 0."""
    found = {Use: [0] * len(graph.uses), None: [0] * len(graph.values)}
    for thing, exponent in of:
        found[Use if type(thing) is Use else None][thing.index] = exponent
    return Exponents(tuple(found[None]), tuple(found[Use]), **more)


def magnitudes_of(graph, of):
    """Return magnitudes of some values, from pairs; others are unknown."""
    found = [None] * len(graph.values)
    for value, magnitude in of:
        found[value.index] = magnitude
    return found
