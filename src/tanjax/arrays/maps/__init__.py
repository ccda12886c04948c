"""The four linear maps between tangents of fields and of the array, for every array.

`_tangents`: structural tangents as one vector space. `_destructure`: J and Jᵀ with their checks; no
type is known there. `_defaults`: the maps of a type that has only `to_dense`, derived by AD.
`_restructure`: J⁺ and J⁺ᵀ, which may answer with a `Zero`, and what is made of all four. What the
layers above use is named in `tanjax.arrays`.
"""
