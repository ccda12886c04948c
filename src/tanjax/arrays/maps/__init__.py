"""The four linear maps between tangents of fields and of the array, for every array.

`_tangents`: structural tangents as one vector space. `_destructure`: J and Jᵀ with their checks,
without imports of types. `_defaults`: the maps of a type that has only `to_dense`, derived by AD.
`_restructure`: J⁺ and J⁺ᵀ, which may return a `Zero`, and functions that combine the four. The
layers above import these names from `tanjax.arrays`.
"""
