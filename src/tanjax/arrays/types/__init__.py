"""The array types, one file each: fields, `to_dense`, and closed forms of maps and queries.

A file here imports what is below it (`AbstractArray`, the maps, cotangents, quantities), and other
types only where it is made of them. `tanjax.arrays` names them.
"""
