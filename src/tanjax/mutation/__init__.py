"""Layer 10: functions that write to Refs, as pure functions with rules; gradients into buffers."""

from . import _contents as _contents  # registers itself with `tanjax.transforms`
from ._buffers import GradientRefs as GradientRefs
from ._discharge import discharge as discharge
from ._inplace import InPlace as InPlace, inplace as inplace
from ._into import accumulate as accumulate, gradient as gradient, zero_refs as zero_refs
from ._refs import (
    StructuredRef as StructuredRef,
    freeze as freeze,
    is_ref as is_ref,
    new_ref as new_ref,
)
from ._tangents import (
    combine as combine,
    fdata as fdata,
    fdata_type as fdata_type,
    increment as increment,
    rdata as rdata,
    rdata_type as rdata_type,
    set_to_zero as set_to_zero,
)
from ._transition import Transition as Transition
