"""Natural and structural (co)tangents: the maps between them, and the types of cotangents."""

from .arrays import (
    Fill as Fill,
    Masked as Masked,
    Outer as Outer,
    Scaled as Scaled,
    Sum as Sum,
    Zero as Zero,
    add_tangents as add_tangents,
    destructure as destructure,
    inner_product as inner_product,
    is_visible as is_visible,
    natural as natural,
    project as project,
    pullback_of_destructure as pullback_of_destructure,
    pullback_of_restructure as pullback_of_restructure,
    pushforward_of_destructure as pushforward_of_destructure,
    pushforward_of_restructure as pushforward_of_restructure,
    restructure as restructure,
    structural as structural,
    tangent_type as tangent_type,
    zero_tangent as zero_tangent,
)
from .transforms import free_coordinates as free_coordinates

__all__ = sorted(name for name in globals() if name[0].isalpha())
