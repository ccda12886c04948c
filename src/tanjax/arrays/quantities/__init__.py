"""Quantities: `Unitful`, an array of any type times a unit, and what its numbers need.

From below: `_range` (where numbers lie), `_conversion` (from unit to unit), `_text`, `_unitful`
(the type); on it `_parts` (whether a value is one, its number, its label: what other layers ask),
`_scaling` (its powers of two), `_hoisting` (arrays of quantities), `_making` (from what people
write). Functions of quantities are one layer above, in `registry/quantities`.
"""
