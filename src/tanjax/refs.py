"""Functions that write arrays in place, and gradients that are added to memory."""

from .mutation import (
    GradientRefs as GradientRefs,
    InPlace as InPlace,
    StructuredRef as StructuredRef,
    Transition as Transition,
    accumulate as accumulate,
    combine as combine,
    discharge as discharge,
    fdata as fdata,
    fdata_type as fdata_type,
    freeze as freeze,
    gradient as gradient,
    increment as increment,
    inplace as inplace,
    new_ref as new_ref,
    rdata as rdata,
    rdata_type as rdata_type,
    set_to_zero as set_to_zero,
    zero_refs as zero_refs,
)

__all__ = sorted(name for name in globals() if name[0].isalpha())
