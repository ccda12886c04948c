"""Layer 7: functions that write to `jax.Ref`s, with true derivatives; gradients into buffers."""

from ._buffers import GradientRefs as GradientRefs
from ._into import accumulate as accumulate, gradient as gradient, zero_refs as zero_refs
