"""The array types, one file each: fields, `to_dense`, and closed forms of maps and queries.

A type imports lower modules (`AbstractArray`, the maps, cotangents, quantities), and other types
only to build on them. `tanjax.arrays` exports the types.
"""
