"""Quantities: `Unitful`, an array of any type times a unit, and helpers for its numbers.

From below: `_range` (the magnitudes of numbers), `_conversion` (from unit to unit), `_text`,
`_unitful` (the type). `_parts` (type test, number and label, for other layers), `_scaling` (powers
of two), `_hoisting` (arrays of quantities) and `_making` (the constructors for users) build on it.
Functions of quantities are one layer above, in `registry/quantities`.
"""
